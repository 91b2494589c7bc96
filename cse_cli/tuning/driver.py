"""Main loop of a search: it gets trials from the study, gives their runs to the engine, and returns the results.

One process runs a search. It fails the trials that an ended process left, and queues their values again. A trial is one
run per seed, one after the other, whose dev scores are reported to Optuna.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any
from uuid import uuid4

from optuna import Study, Trial
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState

from cse_cli.core.results import Result
from cse_cli.evaluation.evaluate import score
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job
from cse_cli.jobs.tasks import POLL_SECONDS
from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.runs.claim import Busy, BusyError, Done
from cse_cli.runs.events import End, Listener, Pruned
from cse_cli.runs.record import STOP, About, RunRecord, delete_checkpoints, request_end
from cse_cli.runs.signals import in_one_line, stop_if_asked
from cse_cli.tuning import samplers
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.live import Ending, TuneScreen
from cse_cli.tuning.parameter import Parameter, settings_of
from cse_cli.tuning.parts import reason_of, with_parts
from cse_cli.tuning.record import take_record
from cse_cli.tuning.results import is_best_so_far, read_trial
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import (
    NUMBER,
    OWN,
    REASON,
    REPORTED,
    RUN,
    RUNS,
    SAME_AS,
    SCORES,
    budget,
    counts,
    is_left,
    number_of,
    settled,
    state,
    values_of,
)
from registry.errors import CseError, DiskError, MissingError, RunFailedError, StopRequested, TrackingError

MOST_FAILURES = 5
"""Failed trials of this process after which it stops if no trial is complete."""


class Driver:
    """Runs trials until the budget of a search is spent."""

    def __init__(self, study: Study, config: SearchConfig, engine: Engine, parent: About, screen: TuneScreen) -> None:
        self._base = config.load_base()
        recipe = self._base.recipe
        self._budget = budget(study)
        self.study = study
        self.config = config.model_copy(update={"trials": self._budget, "seeds": config.seeds_of(recipe)})
        self.ran = 0
        self._engine = engine
        self._parent = parent
        self._screen = screen
        self._space = samplers.distributions(config.parameters)
        self._points = samplers.all_points(config.parameters)
        if config.sampler == "grid":
            self._points = samplers.grid_points(config.parameters, self._budget)
        self._until = None if config.timeout is None else time.monotonic() + config.timeout
        self._open: dict[int, TrialRuns] = {}
        self._running: dict[str, TrialRuns] = {}
        self._failed_before = counts(study.get_trials(deepcopy=False))["failed"]
        study.pruner = samplers.make_pruner(self.config, recipe.train.steps, recipe.train.evaluate_every)

    def drive(self) -> Ending:
        """Run trials until none is left, and return the reason. Errors that all trials would share end the search."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._queue_again(trial)
        ending = None
        try:
            while ending is None or self._running:
                stop_if_asked()
                if (self._parent.path / STOP).exists():
                    message = f"search '{self.config.name}' was stopped by `cse runs stop`"
                    action = f"continue it: cse tune --resume {self.config.name}"
                    raise StopRequested(message, action, code="tune.stopped")
                ending = self._begin_trials()
                for run_id, end in self._engine.ended():
                    self._continue(self._running.pop(run_id), end)
            return ending
        finally:
            for runs in self._open.values():
                runs.end("stopped")

    def _queue_again(self, left: FrozenTrial) -> None:
        """Queue the values of a trial that an ended process left, and fail it. A claim resumes its unfinished run."""
        known = left.user_attrs
        if (NUMBER in known or OWN in known) and not {REASON, SAME_AS} & known.keys():
            self._screen.resumed(number_of(left))
            self.study.enqueue_trial(values_of(left), {**known, REPORTED: left.intermediate_values})
        self.study.tell(left.number, state=TrialState.FAIL)

    def _begin_trials(self) -> Ending | None:
        """Start trials while slots are free. Return why none is left, or None if all slots are in use."""
        while len(self._open) < self._engine.slots:
            trials = [one for one in self.study.get_trials(deepcopy=False) if not is_left(one)]
            if self._until is not None and time.monotonic() >= self._until:
                return "timeout"
            if len(settled(trials)) + len(self._open) >= self._budget:
                return "budget"
            if not self._has_more(trials):
                return "exhausted"
            self._begin_trial(trials)
        return None

    def _has_more(self, trials: list[FrozenTrial]) -> bool:
        """Return whether a point is left. Queue one if the sampler does not choose it."""
        if self._points is None or any(trial.state == TrialState.WAITING for trial in trials):
            return True
        invalid = [trial.params.items() for trial in trials if state(trial) == "invalid"]
        left = []
        for point in samplers.untried(self._points, [values_of(trial) for trial in trials]):
            if not any(params <= point.items() for params in invalid):
                left.append(point)
        if left and self.config.sampler == "grid":
            self.study.enqueue_trial(left[0])
        elif left and _is_stuck(trials):
            self.study.enqueue_trial(random.Random(len(trials)).choice(left))
        return bool(left)

    def _begin_trial(self, trials: list[FrozenTrial]) -> None:
        """Get a trial, and start it if its parts are compatible and its values are new."""
        config = self.config.model_copy(update={"sampler": "random"}) if _is_stuck(trials) else self.config
        self.study.sampler = samplers.make_sampler(config, self._space, len(trials))
        trial = self.study.ask()
        reason = self._choose_values(trial)
        others = [one for one in trials if one.number in self._open or state(one) is not None]
        for other in others:
            may_repeat = OWN in trial.user_attrs and OWN not in other.user_attrs
            if samplers.is_same_point(other.params, trial.params) and not may_repeat:
                trial.set_user_attr(SAME_AS, other.number)
                self.study.tell(trial, state=TrialState.FAIL)
                return
        if NUMBER not in trial.user_attrs:
            trial.set_user_attr(NUMBER, len(others))
        if reason is not None:
            trial.set_user_attr(REASON, reason)
            self._screen.trial_invalid(read_trial(self.study.tell(trial, state=TrialState.PRUNED)))
            return
        self._screen.trial_began(number_of(trial), trial.params)
        self._open[trial.number] = runs = TrialRuns(self.config, self._parent, trial)
        self._continue(runs)

    def _choose_values(self, trial: Trial) -> str | None:
        """Give a trial its values, and return why its parts are not compatible, or None if they are."""
        parts = [parameter for parameter in self.config.parameters if parameter.part]
        self._suggest(trial, parts)
        if OWN not in trial.user_attrs:
            try:
                with_parts(self._base, parts, trial.params)
            except RecipeError as error:
                return reason_of(error)
        self._suggest(trial, [parameter for parameter in self.config.parameters if not parameter.part])
        return None

    def _suggest(self, trial: Trial, parameters: Sequence[Parameter]) -> None:
        held = samplers.own_values(self.config.parameters) if OWN in trial.user_attrs else self._space
        for parameter in parameters:
            if parameter.name in held and parameter.exists(trial.params):
                samplers.suggest(trial, parameter.name, self._space[parameter.name])

    def _continue(self, runs: TrialRuns, ended: Result | Exception | None = None) -> None:
        """Receive the end of a trial's run, then start its next run or end the trial."""
        try:
            while True:
                if isinstance(ended, Exception):
                    raise ended
                if ended is not None:
                    runs.take(ended)
                if (job := runs.next_job()) is None:
                    return self._settle(runs, TrialState.COMPLETE, "finished")
                claim = job.claim(self._engine.device)
                if isinstance(claim, Busy):  # a worker of a killed process still ends the run
                    ended = None
                    time.sleep(POLL_SECONDS)
                elif isinstance(claim, Done):
                    ended = claim.run.result or Pruned(claim.run.reason)
                else:
                    runs.begin(job.seed, claim.run_id)
                    show = self._screen.receiver(f"trial {number_of(runs.trial)}", alone=self._engine.slots == 1)
                    self._running[claim.run_id] = runs
                    return self._engine.start(claim, runs.listener(claim.run_id, show))
        except Pruned as error:
            self._settle(runs, TrialState.PRUNED, "pruned", str(error))
        except BusyError:
            time.sleep(POLL_SECONDS)
            self._continue(runs)
        except Exception as error:
            own_fails = OWN in runs.trial.user_attrs and isinstance(error, CseError)
            shared = isinstance(error, (TrackingError, DiskError, MissingError, OptunaError))
            if shared or (own_fails and not isinstance(error, RunFailedError)):  # all trials would raise it
                raise
            runs.trial.set_user_attr(REASON, in_one_line(error))
            self._settle(runs, TrialState.FAIL, "failed", in_one_line(error))

    def _settle(self, runs: TrialRuns, became: TrialState, kind: End, reason: str = "") -> None:
        del self._open[runs.trial.number]
        runs.end(kind, reason)
        frozen = self.study.tell(runs.trial, runs.score if kind == "finished" else None, became)
        trials = self.study.get_trials(deepcopy=False)
        trial = read_trial(frozen)
        self.ran += 1
        self._screen.trial_ended(trial, is_best_so_far(frozen, trials), len(settled(trials)))
        count = counts(trials)
        if not count["complete"] and count["failed"] - self._failed_before >= MOST_FAILURES:
            raise RunFailedError(
                f"{MOST_FAILURES} trials failed and none is complete. The last reason: {trial.reason}",
                "run the recipe with `cse run`, or use a smaller range",
                code="tune.all_trials_failed",
            )


def _is_stuck(trials: list[FrozenTrial]) -> bool:
    """Return whether the last trial repeated the values of another one."""
    return bool(trials) and SAME_AS in trials[-1].user_attrs


class TrialRuns:
    """The runs of one trial.

    A trial that an ended process left is continued: the claim of a run returns the result of a finished run, and
    resumes an unfinished one.
    """

    def __init__(self, config: SearchConfig, parent: About, trial: Trial) -> None:
        self.trial = trial
        self._config = config
        self._parent = parent
        self._several = len(config.seeds) > 1
        self._name = f"trial {number_of(trial)} of {config.name}"  # lists of runs show the beginning of a name
        self._scores: dict[str, float] = dict(trial.user_attrs.get(SCORES, {}))
        self._summary: RunRecord | None = None
        for step, value in trial.user_attrs.get(REPORTED, {}).items():
            trial.report(value, int(step))

    @property
    def score(self) -> float:
        """Mean score over the seeds."""
        return fmean(self._scores.values())

    def next_job(self) -> Job | None:
        """Return the run of the next seed, or None if every seed has a score."""
        seed = next((seed for seed in self._config.seeds if str(seed) not in self._scores), None)
        if seed is None:
            return None
        values = {} if OWN in self.trial.user_attrs else self.trial.params
        overrides, removed = settings_of(self._config.parameters, values)
        seeded: list[str | Override] = [*self._config.trial_overrides, *overrides, Override.of("train.seed", seed)]
        loaded = load(self._config.recipe, seeded, [*self._config.unset, *removed])
        parent, name = self._parent.run_id, self._name
        if self._several:
            if self._summary is None:
                self._summary = self._open_summary(loaded)
            parent, name = self._summary.run_id, f"seed {seed} of {self._name}"
        return self._job(loaded, seed, parent=parent, run_name=name)

    def take(self, result: Result) -> None:
        """Receive the result of a run.

        Raises:
            Pruned: If the other trials are better with the same seeds.
            RunFailedError: If the dev score is NaN.
        """
        self._scores[str(result.seed)] = _selected_score(result)
        if self._several:
            self._report(len(self._scores) - 1)
        elif RUN not in self.trial.user_attrs:  # the run was finished before, and not observed
            self.trial.set_user_attr(RUN, result.run_id)

    def begin(self, seed: int, run_id: str) -> None:
        """Keep the ID of the run of a seed."""
        self.trial.set_user_attr(RUNS, {**self.trial.user_attrs.get(RUNS, {}), str(seed): run_id})
        if not self._several:
            self.trial.set_user_attr(RUN, run_id)

    def listener(self, run_id: str, show: Listener) -> Listener:
        """Return the receiver of the events of a run. Its dev scores can end it if it is the only run of the trial."""
        steps = 0

        def listen(kind: str, data: Mapping[str, Any]) -> None:
            nonlocal steps
            show(kind, data)
            steps = data["steps"] if kind == "started" else steps
            # The score of the untrained state does not describe the trial.
            if kind == "evaluated" and not self._several and (step := data["step"]) > 0:
                value = float(next(iter(data["scores"].values())))
                if not math.isnan(value):
                    self.trial.report(value, step)
                    if step < steps and self.trial.should_prune():
                        request_end(run_id, f"step {step}: dev score {value:.2f}")

        return listen

    def end(self, kind: End, reason: str = "") -> None:
        """Record the end of the trial. A failed one is not resumed."""
        if kind == "failed":
            for run_id in self.trial.user_attrs.get(RUNS, {}).values():
                delete_checkpoints(run_id)
        if self._summary is not None:
            if kind == "finished":
                values = self._scores.values()
                self._summary.metrics({"score/mean": fmean(values), "score/spread": pstdev(values)}, len(values))
            self._summary.end(kind, reason)

    def _report(self, place: int) -> None:
        values = list(self._scores.values())
        if self._summary is not None:
            self._summary.metrics({"score/seed": values[-1]}, place)
        # Wilcoxon's test compares seed with seed. The other pruners compare means over the seeds so far.
        self.trial.report(values[-1] if pruner_name(self._config) == "wilcoxon" else fmean(values), place)
        self.trial.set_user_attr(SCORES, self._scores)
        if place + 1 < len(self._config.seeds) and self.trial.should_prune():
            raise Pruned(f"mean {fmean(values):.2f} over {len(values)} seeds")

    def _open_summary(self, loaded: LoadedRecipe) -> RunRecord:
        """Return the record that summarizes the runs. Its ID is stored first, so there is never a second one."""
        if RUN not in self.trial.user_attrs:
            self.trial.set_user_attr(RUN, uuid4().hex)
        job = self._job(loaded, loaded.recipe.train.seed, parent=self._parent.run_id, run_name=self._name)
        own = {"run_id": self.trial.user_attrs[RUN], "summary": "seeds", "seed": None}
        about = job.about(None).model_copy(update=own)
        record = take_record(about, loaded.recipe.resolved())
        record.started()
        return record

    def _job(self, loaded: LoadedRecipe, seed: int, *, parent: str, run_name: str) -> Job:
        return Job(
            loaded, seed, search=self._config.name, trial=number_of(self.trial), parent=parent, run_name=run_name,
            tags=self._config.tags, group=self._parent.group,
        )  # fmt: skip


def _selected_score(result: Result) -> float:
    """Return the dev score of the selected checkpoint."""
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = math.nan
    if result.metric_for_best_model is not None and not result.steps:
        value = score(result.scores, result.metric_for_best_model)
    if math.isnan(value):
        raise RunFailedError("the dev score is NaN", code="tune.nan_score")
    return value
