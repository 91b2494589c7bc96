"""Main loop of a search: it asks the study for trials, gives their runs to an executor, and tells the results.

One process runs a search. It fails the trials that an ended process left, and queues their values again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import Future

from optuna import Study, Trial
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState

from cse_cli.core.events import Pruned
from cse_cli.core.results import Result
from cse_cli.jobs.executor import Executor
from cse_cli.jobs.tasks import POLL_SECONDS
from cse_cli.recipe.errors import RecipeError
from cse_cli.runs.claim import BusyError
from cse_cli.runs.events import End
from cse_cli.runs.record import STOP, About
from cse_cli.runs.signals import in_one_line, stop_if_asked
from cse_cli.tuning import samplers
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.live import Ending, TuneScreen
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.parts import reason_of, with_parts
from cse_cli.tuning.results import is_best_so_far, read_trial
from cse_cli.tuning.study import (
    NUMBER,
    OWN,
    REASON,
    REPORTED,
    SAME_AS,
    budget,
    counts,
    is_left,
    number_of,
    settled,
    state,
    values_of,
)
from cse_cli.tuning.trial import TrialRuns
from registry.errors import CseError, DiskError, MissingError, RunFailedError, StopRequested, TrackingError

MOST_FAILURES = 5
"""Failed trials of this process after which it stops if no trial is complete."""


class Driver:
    """Runs trials until the budget of a search is spent."""

    def __init__(
        self, study: Study, config: SearchConfig, executor: Executor, parent: About, screen: TuneScreen
    ) -> None:
        self._base = config.load_base()
        recipe = self._base.recipe
        self._budget = budget(study)
        self.study = study
        self.config = config.model_copy(update={"trials": self._budget, "seeds": config.seeds_of(recipe)})
        self.ran = 0
        self._executor = executor
        self._parent = parent
        self._screen = screen
        self._space = samplers.distributions(config.parameters)
        self._points = samplers.all_points(config.parameters)
        if config.sampler == "grid":
            self._points = samplers.grid_points(config.parameters, self._budget)
        self._until = None if config.timeout is None else time.monotonic() + config.timeout
        self._open: dict[int, TrialRuns] = {}
        self._running: dict[Future[Result], TrialRuns] = {}
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
                if self._running:
                    self._executor.wait()
                for future in [future for future in self._running if future.done()]:
                    self._continue(self._running.pop(future), future)
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
        while len(self._open) < self._executor.slots:
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
        """Ask for a trial, and start it if its parts are compatible and its values are new."""
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

    def _continue(self, runs: TrialRuns, ended: Future[Result] | None = None) -> None:
        """Receive the result of a trial's run, then submit its next run or end the trial."""
        try:
            if ended is not None:
                runs.take(ended.result())
            job = runs.next_job()
        except Pruned as error:
            self._settle(runs, TrialState.PRUNED, "pruned", str(error))
        except BusyError:  # a worker of a killed process still ends the run
            time.sleep(POLL_SECONDS)
            self._continue(runs)
        except Exception as error:
            if _ends_search(error, runs.trial):
                raise
            runs.trial.set_user_attr(REASON, in_one_line(error))
            self._settle(runs, TrialState.FAIL, "failed", in_one_line(error))
        else:
            if job is None:
                self._settle(runs, TrialState.COMPLETE, "finished")
            else:
                inner = self._screen.observer_of(f"trial {number_of(runs.trial)}", alone=self._executor.one_by_one)
                self._running[self._executor.submit(job, runs.observer(job.seed, inner))] = runs

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


def _ends_search(error: Exception, trial: Trial) -> bool:
    """Return whether all other trials would raise this error too."""
    if isinstance(error, (TrackingError, DiskError, MissingError, OptunaError)):
        return True
    return OWN in trial.user_attrs and isinstance(error, CseError) and not isinstance(error, RunFailedError)
