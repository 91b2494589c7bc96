"""Main loop of a search: it gets trials from the study, gives their runs to the engine, and returns the results.

One process runs a search. It fails the trials that an ended process left, and queues their values again. A trial is one
run per seed, one after the other, whose dev scores are reported to Optuna. The claim of a run returns the result of a
finished run, and resumes an unfinished one, so a trial that is queued again continues where its runs ended.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import replace
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
from cse_cli.jobs.launch import POLL_SECONDS, lacks_checkpoint
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.problems import RecipeError
from cse_cli.runs.claim import BusyError, Claimed, open_run
from cse_cli.runs.events import End, Listener, Pruned, read_history
from cse_cli.runs.record import ABOUT, STOP, About, RunRecord, delete_checkpoints, folder_of, read_about, request_end
from cse_cli.runs.signals import in_one_line, stop_if_asked
from cse_cli.tuning.parameters import reason_of, settings_of, with_parts
from cse_cli.tuning.results import read_trial
from cse_cli.tuning.study import (
    OWN,
    REASON,
    RUN,
    SAME_AS,
    TRIALS,
    VALUES,
    SearchConfig,
    key_of,
    make_pruner,
    make_sampler,
    own_values,
    points,
    settled,
    state,
    stored_config,
    suggest,
)
from cse_cli.tuning.view import Ending, TuneScreen
from registry.errors import CseError, DiskError, MissingError, RunFailedError, StopRequested, TrackingError

MOST_FAILURES = 5
"""Failed trials of this process after which it stops if no trial is complete."""


class Driver:
    """Runs trials until the budget of a search is spent. `ran`: number of trials that ended in this process."""

    def __init__(self, study: Study, config: SearchConfig, engine: Engine, parent: About, screen: TuneScreen) -> None:
        self._base = config.load_base()
        train = self._base.recipe.train
        self._budget = stored_config(study).trials or TRIALS
        self.study, self.config, self.ran = study, config.model_copy(update={"trials": self._budget}), 0
        self._engine, self._parent, self._screen = engine, parent, screen
        self._points = points(config.parameters, self._budget if config.sampler == "grid" else None)
        self._until = math.inf if config.timeout is None else time.monotonic() + config.timeout
        self._open: dict[int, TrialRuns] = {}
        self._running: dict[str, TrialRuns] = {}
        self._waiting: list[TrialRuns] = []
        self._failures = 0
        study.pruner = make_pruner(self.config, train.steps, train.evaluate_every)

    def drive(self) -> Ending:
        """Run trials until none is left, and return the reason. Errors that all trials would share end the search."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._queue_again(trial)
        ending = None
        try:
            while ending is None or self._open:
                stop_if_asked()
                if (self._parent.path / STOP).exists():
                    name = self.config.name
                    action = f"continue it: cse tune --resume {name}"
                    raise StopRequested(f"search '{name}' was stopped by `cse runs stop`", action, code="tune.stopped")
                ending = self._begin_trials()
                if self._waiting and not self._running:
                    time.sleep(POLL_SECONDS)
                waiting, self._waiting = self._waiting, []
                for runs in waiting:
                    self._continue(runs)
                for run_id, end in self._engine.ended():
                    runs = self._running.pop(run_id)
                    if lacks_checkpoint(end, run_id):
                        again = f"trial {runs.trial.number} starts again from its first step"
                        self._screen.warned(f"{again}: {end.message}")
                        self._continue(runs)
                    else:
                        self._continue(runs, end)
            return ending
        finally:
            for runs in self._open.values():
                runs.end("stopped")

    def _queue_again(self, left: FrozenTrial) -> None:
        """Fail a trial that an ended process left, and queue its values again if it had chosen all of them."""
        known, parameters = left.user_attrs, self.config.parameters
        values = own_values(parameters) if OWN in known else known.get(VALUES, left.params)
        chosen = OWN in known or all(one.name in values for one in parameters if one.exists(values))
        if chosen and not {REASON, SAME_AS} & known.keys():
            self._screen.write(f"[dim]resuming interrupted trial {left.number}[/dim]")
            self.study.enqueue_trial(values, {**known, VALUES: values})
        self.study.tell(left.number, state=TrialState.FAIL)

    def _begin_trials(self) -> Ending | None:
        """Start trials while slots are free. Return why none is left, or None if all slots are in use."""
        while len(self._open) < self._engine.slots:
            trials = self.study.get_trials(deepcopy=False)
            # Those that an ended process left are queued again, so they are not trials.
            left = [one for one in trials if one.state == TrialState.FAIL and not {REASON, SAME_AS} & {*one.user_attrs}]
            trials = [one for one in trials if one not in left]
            if time.monotonic() >= self._until:
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
        had = {key_of(trial.params) for trial in trials}
        invalid = [trial.params.items() for trial in trials if state(trial) == "invalid"]
        new = [point for point in self._points if key_of(point) not in had]
        left = [point for point in new if not any(params <= point.items() for params in invalid)]
        if left and self.config.sampler == "grid":
            self.study.enqueue_trial(left[0])
        elif left and _is_stuck(trials):
            self.study.enqueue_trial(random.Random(len(trials)).choice(left))
        return bool(left)

    def _begin_trial(self, trials: list[FrozenTrial]) -> None:
        """Get a trial, and start it if its parts are compatible and its values are new."""
        config = self.config.model_copy(update={"sampler": "random"}) if _is_stuck(trials) else self.config
        self.study.sampler = make_sampler(config, len(trials))
        trial = self.study.ask()
        reason = self._choose_values(trial)
        known = [other for other in trials if other.number in self._open or state(other) is not None]
        if same := [other.number for other in known if key_of(other.params) == key_of(trial.params)]:
            trial.set_user_attr(SAME_AS, same[0])
            self.study.tell(trial, state=TrialState.FAIL)
            return
        if reason is not None:
            trial.set_user_attr(REASON, reason)
            self._screen.trial_invalid(read_trial(self.study.tell(trial, state=TrialState.PRUNED)))
            return
        self._screen.trial_began(trial.number, trial.params)
        self._open[trial.number] = runs = TrialRuns(self.config, self._parent, trial)
        self._continue(runs)

    def _choose_values(self, trial: Trial) -> str | None:
        """Give a trial its values, and return why its parts are not compatible, or None if they are."""
        own = own_values(self.config.parameters) if OWN in trial.user_attrs else None
        parts = [parameter for parameter in self.config.parameters if parameter.part]
        for several in (parts, [parameter for parameter in self.config.parameters if not parameter.part]):
            for parameter in several:
                if parameter.exists(trial.params) and (own is None or parameter.name in own):
                    suggest(trial, parameter)
            try:
                if several is parts and own is None:
                    with_parts(self._base, parts, trial.params)
            except RecipeError as error:
                return reason_of(error)
        return None

    def _continue(self, runs: TrialRuns, ended: Result | Exception | None = None) -> None:
        """Receive the end of a trial's run, then start its next run or end the trial."""
        try:
            if isinstance(ended, Exception):
                raise ended
            if ended is not None:
                runs.take(ended)
            while (job := runs.next_job()) is not None:
                claim = job.claim(self._engine.device)
                if isinstance(claim, Claimed):
                    runs.begin(claim.run_id)
                    show = self._screen.receiver(f"trial {runs.trial.number}", alone=self._engine.slots == 1)
                    self._running[claim.run_id] = runs
                    return self._engine.start(claim, runs.listener(claim.run_id, show))
                runs.begin(claim.run_id)
                if claim.result is None:
                    raise Pruned(claim.reason)
                runs.take(claim.result)
            self._settle(runs, TrialState.COMPLETE, "finished")
        except Pruned as error:
            self._settle(runs, TrialState.PRUNED, "pruned", str(error))
        except BusyError:  # a worker of a killed process still ends the run
            self._waiting.append(runs)
        except Exception as error:
            own_fails = OWN in runs.trial.user_attrs and isinstance(error, CseError)
            shared = isinstance(error, (TrackingError, OSError, DiskError, MissingError, OptunaError))
            if shared or (own_fails and not isinstance(error, RunFailedError)):  # all trials would raise it
                raise
            runs.trial.set_user_attr(REASON, in_one_line(error))
            self._settle(runs, TrialState.FAIL, "failed", in_one_line(error))

    def _settle(self, runs: TrialRuns, became: TrialState, kind: End, reason: str = "") -> None:
        del self._open[runs.trial.number]
        runs.end(kind, reason)
        frozen = self.study.tell(runs.trial, fmean(runs.scores) if kind == "finished" else None, became)
        trials = self.study.get_trials(deepcopy=False)
        trial = read_trial(frozen)
        self.ran += 1
        self._failures += kind == "failed"
        best = kind == "finished" and self.study.best_trial.number == trial.number
        self._screen.trial_ended(trial, best, len(settled(trials)))
        if self._failures >= MOST_FAILURES and not any(one.state == TrialState.COMPLETE for one in trials):
            message = f"{MOST_FAILURES} trials failed and none is complete. The last reason: {trial.reason}"
            action = "run the recipe with `cse run`, or use a smaller range"
            raise RunFailedError(message, action, code="tune.all_trials_failed")


def _is_stuck(trials: list[FrozenTrial]) -> bool:
    return bool(trials) and SAME_AS in trials[-1].user_attrs


class TrialRuns:
    """The runs of one trial. `scores`: those of its first seeds."""

    def __init__(self, config: SearchConfig, parent: About, trial: Trial) -> None:
        self.trial, self.scores = trial, list[float]()
        self._config, self._parent = config, parent
        self._summary: RunRecord | None = None
        self._last_run = ""

    def next_job(self) -> Job | None:
        """Return the run of the next seed, or None if every seed has a score."""
        if len(self.scores) == len(self._config.seeds):
            return None
        seed = self._config.seeds[len(self.scores)]
        values = {} if OWN in self.trial.user_attrs else self.trial.params
        overrides, removed = settings_of(self._config.parameters, values)
        seeded: list[str | Override] = [*self._config.trial_overrides, *overrides, Override.of("train.seed", seed)]
        loaded = load(self._config.recipe, seeded, [*self._config.unset, *removed])
        job = Job(
            loaded, seed, search=self._config.name, trial=self.trial.number, parent=self._parent.run_id,
            run_name=f"trial {self.trial.number} of {self._config.name}",  # lists of runs show the beginning of a name
            tags=self._config.tags, group=self._parent.group,
        )  # fmt: skip
        if len(self._config.seeds) == 1:
            return job
        if self._summary is None:
            if RUN not in self.trial.user_attrs:  # stored first, so there is never a second record
                self.trial.set_user_attr(RUN, uuid4().hex)
            own = {"run_id": self.trial.user_attrs[RUN], "summary": "seeds", "seed": None}
            self._summary = take_record(job.about(None).model_copy(update=own), loaded)
            self._summary.started()
        of = read_about(self._summary.run_id)
        return replace(job, trial=of.trial, parent=of.run_id, run_name=f"seed {seed} of {of.name}")

    def begin(self, run_id: str) -> None:
        """Keep the ID of a run."""
        self._last_run = run_id
        if len(self._config.seeds) == 1:
            self.trial.set_user_attr(RUN, run_id)

    def listener(self, run_id: str, show: Listener) -> Listener:
        """Return the receiver of the events of a run. Its dev scores can end it if it is the only run of the trial."""
        steps = 0

        def report(step: int, scores: Mapping[str, float]) -> float:
            # The score of the untrained state does not describe the trial.
            value = float(next(iter(scores.values()))) if step > 0 and len(self._config.seeds) == 1 else math.nan
            if not math.isnan(value):
                self.trial.report(value, step)
            return value

        def listen(kind: str, data: Mapping[str, Any]) -> None:
            nonlocal steps
            show(kind, data)
            if kind == "started":
                steps = data["steps"]
            if kind == "evaluated":
                value, step = report(data["step"], data["scores"]), data["step"]
                if not math.isnan(value) and step < steps and self.trial.should_prune():
                    request_end(run_id, f"step {step}: dev score {value:.2f}")

        for step, scores in read_history(folder_of(run_id), without=("metrics", "system")).evaluated.items():
            report(step, scores)  # of a resumed run
        return listen

    def take(self, result: Result) -> None:
        """Receive the result of the next seed's run: its score is the dev score of the selected checkpoint.

        If the other trials are better with the same seeds, this raises `Pruned`.
        """
        value = math.nan
        if result.selected_step is not None:
            value = result.curve[result.selected_step]
        elif result.metric_for_best_model is not None and not result.steps:
            value = score(result.scores, result.metric_for_best_model)
        if math.isnan(value):
            raise RunFailedError("the dev score is NaN", code="tune.nan_score")
        self.scores.append(value)
        if self._summary is None:
            return
        place, mean = len(self.scores) - 1, fmean(self.scores)
        self._summary.metrics({"score/seed": value}, place)
        # Wilcoxon's test compares seed with seed. The other pruners compare means over the seeds so far.
        self.trial.report(value if self._config.used_pruner == "wilcoxon" else mean, place)
        if place + 1 < len(self._config.seeds) and self.trial.should_prune():
            raise Pruned(f"mean {mean:.2f} over {place + 1} seeds")

    def end(self, kind: End, reason: str = "") -> None:
        """Record the end of the trial. A failed one is not resumed."""
        if kind == "failed" and self._last_run:
            delete_checkpoints(self._last_run)
        if self._summary is not None:
            if kind == "finished":
                values = {"score/mean": fmean(self.scores), "score/spread": pstdev(self.scores)}
                self._summary.metrics(values, len(self.scores))
            self._summary.end(kind, reason)


def take_record(about: About, loaded: LoadedRecipe) -> RunRecord:
    """Return the record of a search or of the seeds of a trial for writing, created with its recipe if it is new."""
    if not (about.path / ABOUT).exists():
        about.write(loaded.recipe.resolved())
    return open_run(about.run_id)
