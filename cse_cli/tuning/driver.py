"""Main loop of a search: it chooses trials, gives their runs to an executor, and reports the results to the study.

Several processes may run this loop for one study. One process at a time chooses a trial: it takes over a trial that an
ended process left, under the same number, or else creates one. At the end each process waits for the trials of the
others, because it takes over the trials of a killed process.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import Future

from optuna import Study, Trial
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from cse_cli.core.events import Pruned
from cse_cli.core.results import Result
from cse_cli.jobs.executor import Executor
from cse_cli.jobs.tasks import POLL_SECONDS
from cse_cli.recipe.errors import RecipeError
from cse_cli.runs.claim import BusyError
from cse_cli.runs.events import End
from cse_cli.runs.lock import is_held
from cse_cli.runs.record import STOP, About, lock_of
from cse_cli.runs.signals import in_one_line, stop_if_asked
from cse_cli.tuning import samplers
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.live import Ending, TuneScreen
from cse_cli.tuning.owner import Owner
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.parts import reason_of, with_parts
from cse_cli.tuning.results import is_best_so_far, read_trial
from cse_cli.tuning.storage import address, resume_command, storage_errors
from cse_cli.tuning.study import (
    BEGUN,
    NUMBER,
    OWN,
    REASON,
    RUNS,
    SAME_AS,
    budget,
    counts,
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
        self.study = study
        self.config = config.model_copy(update={"trials": budget(study), "seeds": config.seeds_of(recipe)})
        self.ran = 0
        self._executor = executor
        self._parent = parent
        self._screen = screen
        self._budget = budget(study)
        self._space = samplers.distributions(config.parameters)
        self._points = samplers.all_points(config.parameters)
        self._parts = [parameter for parameter in config.parameters if parameter.part]
        self._until = None if config.timeout is None else time.monotonic() + config.timeout
        self._owner = Owner(study, address(config.storage, config.name))
        self._open: dict[int, TrialRuns] = {}
        self._running: dict[Future[Result], TrialRuns] = {}
        self._failed_before = counts(study.get_trials(deepcopy=False))["failed"]
        study.pruner = samplers.make_pruner(self.config, recipe.train.steps, recipe.train.evaluate_every)

    def drive(self) -> Ending:
        """Run trials until none is left, and return the reason. Errors that all trials would share end the search."""
        with storage_errors(self.config.storage, self.config.name), self._owner:
            try:
                while True:
                    self._stop_if_asked()
                    ending = self._begin_trials()
                    if self._running:
                        self._executor.wait()
                        for future in [future for future in self._running if future.done()]:
                            self._continue(self._running.pop(future), future)
                    elif ending is not None:
                        return ending
                    else:
                        time.sleep(POLL_SECONDS)  # other processes run the last trials
            finally:
                for runs in self._open.values():
                    runs.end("stopped")

    def _stop_if_asked(self) -> None:
        stop_if_asked()
        if (self._parent.path / STOP).exists():
            name = self.config.name
            message = f"search '{name}' was stopped by `cse runs stop`"
            command = resume_command(self.config.storage, name)
            raise StopRequested(message, f"continue it: {command}", code="tune.stopped")

    def _begin_trials(self) -> Ending | None:
        """Start trials while slots are free. Return why none is left, or None if other processes may leave some."""
        while len(self._open) < self._executor.slots:
            if self._until is not None and time.monotonic() >= self._until:
                return "timeout"
            with self._owner.choosing:
                trial, ending = self._choose()
            if trial is None:
                return ending
            self._screen.trial_began(number_of(trial), trial.params)
            self._open[trial.number] = runs = TrialRuns(self.config, self._parent, trial)
            self._continue(runs)
        return None

    def _choose(self) -> tuple[Trial | None, Ending | None]:
        """Return a trial with values that this process owns, or else the reason why no trial is left."""
        while True:
            trials = self.study.get_trials(deepcopy=False)
            others = [one for one in trials if one.state == TrialState.RUNNING and one.number not in self._open]
            if left := next((one for one in others if self._is_left(one)), None):
                trial = self._take_over(left)
            elif ending := self._ending(trials, len(others) + len(self._open)):
                return None, None if any(self._owner.of(one) != "elsewhere" for one in others) else ending
            else:
                trial = self._ask(trials)
            if self._choose_values(trial):
                return trial, None
            invalid = REASON in trial.user_attrs
            frozen = self.study.tell(trial, state=TrialState.PRUNED if invalid else TrialState.FAIL)
            if invalid:
                self._screen.trial_invalid(read_trial(frozen))

    def _ending(self, trials: list[FrozenTrial], running: int) -> Ending | None:
        """Return why no further trial is created, or None."""
        if len(settled(trials)) + running >= self._budget:
            return "budget"
        return None if self._has_more(trials) else "exhausted"

    def _has_more(self, trials: list[FrozenTrial]) -> bool:
        """Return whether a point is left. Queue one if the sampler has just repeated known values."""
        if any(trial.state == TrialState.WAITING for trial in trials):
            return True
        if self.config.sampler == "grid":
            return False
        if self._points is None:
            return True
        invalid = [trial.params.items() for trial in trials if state(trial) == "invalid"]
        left = []
        for point in samplers.untried(self._points, [values_of(trial) for trial in trials]):
            if not any(params <= point.items() for params in invalid):
                left.append(point)
        if left and _is_stuck(trials):
            self.study.enqueue_trial(random.Random(len(trials)).choice(left))
        return bool(left)

    def _ask(self, trials: list[FrozenTrial]) -> Trial:
        config = self.config.model_copy(update={"sampler": "random"}) if _is_stuck(trials) else self.config
        self.study.sampler = samplers.make_sampler(config, self._space, len(trials))
        trial = self.study.ask()
        self._owner.sign(trial)
        return trial

    def _is_left(self, trial: FrozenTrial) -> bool:
        """Return whether a trial's process has ended, and its worker processes have released its runs."""
        runs = trial.user_attrs.get(RUNS, {}).values()
        return self._owner.of(trial) == "left" and not any(is_held(lock_of(run_id)) for run_id in runs)

    def _take_over(self, left: FrozenTrial) -> Trial:
        """Return a trial that another process left."""
        self._screen.resumed(number_of(left))
        self.study.sampler = samplers.make_sampler(self.config, self._space, left.number)
        trial = Trial(self.study, left._trial_id)
        self._owner.sign(trial)
        trial.set_user_attr(BEGUN, time.time())
        return trial

    def _choose_values(self, trial: Trial) -> bool:
        """Give a trial its values. Return whether it is run: its parts are compatible, and its values are new."""
        own = OWN in trial.user_attrs
        self._suggest(trial, self._parts, own=own)
        reason = None if own else self._incompatible(trial)
        if reason is None:
            self._suggest(trial, [one for one in self.config.parameters if not one.part], own=own)
        others = self.study.get_trials(deepcopy=False)
        for other in others:
            begun = other.state == TrialState.RUNNING and other.number < trial.number
            counted = begun or (state(other) is not None and other.number != trial.number)
            if counted and (OWN in other.user_attrs or not own) and samplers.is_same_point(other.params, trial.params):
                trial.set_user_attr(SAME_AS, other.number)
                return False
        if NUMBER not in trial.user_attrs:
            before = [other for other in others if other.number < trial.number]
            trial.set_user_attr(NUMBER, sum(SAME_AS not in other.user_attrs for other in before))
        if reason is not None:
            trial.set_user_attr(REASON, reason)
        return reason is None

    def _suggest(self, trial: Trial, parameters: Sequence[Parameter], *, own: bool) -> None:
        held = samplers.own_values(self.config.parameters) if own else self._space
        for parameter in parameters:
            if parameter.name in held and parameter.exists(trial.params):
                samplers.suggest(trial, parameter.name, self._space[parameter.name])

    def _incompatible(self, trial: Trial) -> str | None:
        """Return why the parts of a trial are not compatible, or None if they are."""
        try:
            with_parts(self._base, self._parts, trial.params)
        except RecipeError as error:
            return reason_of(error)
        return None

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
    """Return whether the sampler has just repeated known values, and would do so again."""
    return bool(trials) and SAME_AS in trials[-1].user_attrs


def _ends_search(error: Exception, trial: Trial) -> bool:
    """Return whether all other trials would raise this error too."""
    if isinstance(error, (TrackingError, DiskError, MissingError, OptunaError, SQLAlchemyError)):
        return True
    return OWN in trial.user_attrs and isinstance(error, CseError) and not isinstance(error, RunFailedError)
