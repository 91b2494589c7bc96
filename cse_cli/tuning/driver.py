"""The driver of a search: it asks the study for trials, gives their runs to an executor, and tells what became of them.

Only the driver writes to the study. A trial that it leaves at work, because it is interrupted or killed, stays running
there with the ids of its runs; the next driver goes on with it, under the same number.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from optuna import Study, Trial
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from cse_cli import tracking
from cse_cli.core.console import Pruned
from cse_cli.core.results import Result
from cse_cli.core.run_status import is_at_work
from cse_cli.jobs.executor import Executor
from cse_cli.recipe.errors import RecipeError
from cse_cli.tracking.signals import in_one_line
from cse_cli.training.build import Job
from cse_cli.tuning import samplers
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.parts import reason_of, with_parts
from cse_cli.tuning.results import is_best_so_far, read_trial
from cse_cli.tuning.storage import answering
from cse_cli.tuning.study import BEGUN, OWN, REASON, RUNS, SAME_AS, budget, settled, state, values_of
from cse_cli.tuning.trial import TrialRuns
from registry.errors import CseError, DiskError, MissingError, RunFailedError, TrackingError

MOST_FAILURES = 5
"""Trials failed one after the other, with none complete before, that end a search."""
_LEAVE_SECONDS = 30.0
"""How long the processes of a driver that was killed may take to end their runs."""


class Driver:
    """Keeps an executor at work until a study's budget is done.

    Args:
        study: As `open_study` returns it; no other process drives it.
        config: Of the search.
        executor: Does the runs.
        parent: The search's run in the tracking store.
        observer: Of everything.
    """

    def __init__(
        self,
        study: Study,
        config: SearchConfig,
        executor: Executor,
        parent: str | None,
        observer: SearchObserver,
    ) -> None:
        self._base = config.load_base()
        recipe = self._base.recipe
        self.study = study
        self.config = config.model_copy(update={"trials": budget(study), "seeds": config.seeds_of(recipe)})
        self.ran = 0
        self._executor = executor
        self._parent = parent
        self._observer = observer
        self._budget = budget(study)
        self._space = samplers.distributions(config.parameters)
        self._points = samplers.all_points(config.parameters)
        self._parts = [parameter for parameter in config.parameters if parameter.part]
        self._until = None if config.timeout is None else time.monotonic() + config.timeout
        self._interrupted = deque(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
        self._open: dict[int, TrialRuns] = {}
        self._at_work: dict[Future[Result], TrialRuns] = {}
        self._failures = 0
        study.pruner = samplers.make_pruner(self.config, recipe.train.steps, recipe.train.evaluate_every)

    def drive(self) -> Ending:
        """Do trials until none is left to begin, and return why.

        Raises:
            TrackingError: The storage does not answer any more.
            RunFailedError: Trials fail one after the other.
            CseError: The recipe's own values cannot be run, or nothing can be on this machine.
        """
        with answering(self.config.storage, self.config.name):
            try:
                while True:
                    tracking.stop_if_asked()
                    ending = self._begin_trials()
                    if not self._at_work:
                        return ending or "exhausted"
                    self._executor.wait()
                    for future in [future for future in self._at_work if future.done()]:
                        self._go_on(self._at_work.pop(future), future)
            finally:
                for runs in self._open.values():
                    runs.jobs.close()

    def _begin_trials(self) -> Ending | None:
        """Begin trials while there is room for them; return why there will be no more."""
        while len(self._open) < self._executor.slots:
            if self._until is not None and time.monotonic() >= self._until:
                return "timeout"
            trials = self.study.get_trials(deepcopy=False)
            if len(settled(trials)) + len(self._open) >= self._budget:
                return "budget"
            if self._interrupted:
                trial = self._take_up(self._interrupted.popleft())
            elif self._has_more(trials):
                trial = self._ask(trials)
            else:
                return "exhausted"
            if not self._choose_values(trial):
                refused = REASON in trial.user_attrs
                frozen = self.study.tell(trial, state=TrialState.PRUNED if refused else TrialState.FAIL)
                if refused:
                    self._observer.trial_refused(read_trial(frozen))
                continue
            self._observer.trial_began(trial.number, trial.params)
            self._open[trial.number] = runs = TrialRuns(self.config, self._parent, trial)
            self._go_on(runs)
        return None

    def _has_more(self, trials: list[FrozenTrial]) -> bool:
        """Return whether a trial is left to begin; queue one where chance would hardly find the last points."""
        if any(trial.state == TrialState.WAITING for trial in trials):
            return True
        if self.config.sampler == "grid":
            return False
        if self._points is None:
            return True
        left = samplers.untried(self._points, [values_of(trial) for trial in trials])
        refused = [trial.params.items() for trial in trials if state(trial) == "refused"]
        left = [point for point in left if not any(params <= point.items() for params in refused)]
        if left and _is_stuck(trials):
            self.study.enqueue_trial(samplers.random_point(left, len(trials)))
        return bool(left)

    def _ask(self, trials: list[FrozenTrial]) -> Trial:
        config = self.config.model_copy(update={"sampler": "random"}) if _is_stuck(trials) else self.config
        self.study.sampler = samplers.make_sampler(config, self._space, len(trials))
        return self.study.ask()

    def _take_up(self, left: FrozenTrial) -> Trial:
        """Return a trial that another driver has left, once nobody is at its runs any more."""
        self._observer.resumed(left.number)
        until = time.monotonic() + _LEAVE_SECONDS
        for run_id in left.user_attrs.get(RUNS, {}).values():
            while is_at_work(run_id):
                if time.monotonic() > until:
                    raise CseError(
                        f"run {run_id[:8]} of trial {left.number} is still going on", "end its process first"
                    )
                time.sleep(0.2)
        self.study.sampler = samplers.make_sampler(self.config, self._space, left.number)
        trial = Trial(self.study, left._trial_id)
        trial.set_user_attr(BEGUN, time.time())
        return trial

    def _choose_values(self, trial: Trial) -> bool:
        """Give a trial its values; return whether it is to be run: its parts fit, and none has had the values yet."""
        own = OWN in trial.user_attrs
        self._suggest(trial, self._parts, own=own)
        reason = None if own else self._refusal(trial)
        if reason is None:
            self._suggest(trial, [one for one in self.config.parameters if not one.part], own=own)
        for other in [] if own else self.study.get_trials(deepcopy=False):
            counts = state(other) is not None or (other.state == TrialState.RUNNING and other.number != trial.number)
            if counts and samplers.is_same_point(other.params, trial.params):
                trial.set_user_attr(SAME_AS, other.number)
                return False
        if reason is not None:
            trial.set_user_attr(REASON, reason)
        return reason is None

    def _suggest(self, trial: Trial, parameters: Sequence[Parameter], *, own: bool) -> None:
        held = samplers.own_values(self.config.parameters) if own else self._space
        for parameter in parameters:
            if parameter.name in held and parameter.exists(trial.params):
                samplers.suggest(trial, parameter.name, self._space[parameter.name])

    def _refusal(self, trial: Trial) -> str | None:
        """Return why the parts of a trial do not fit together; None where they do."""
        try:
            with_parts(self._base, self._parts, trial.params)
        except RecipeError as error:
            return reason_of(error)
        return None

    def _go_on(self, runs: TrialRuns, ended: Future[Result] | None = None) -> None:
        """Submit the next run of a trial, or tell the study what became of it."""
        try:
            job = _next_job(runs, ended)
        except StopIteration as end:
            self._settle(runs, TrialState.COMPLETE, end.value)
        except Pruned:
            self._settle(runs, TrialState.PRUNED)
        except Exception as error:
            if _ends_search(error, runs.trial):
                raise
            runs.trial.set_user_attr(REASON, in_one_line(error))
            runs.discard_checkpoints()
            self._settle(runs, TrialState.FAIL)
        else:
            alone = self._executor.one_by_one
            inner = self._observer.observer_of(runs.trial.number, alone=alone)
            self._at_work[self._executor.submit(job, runs.observer(job.seed, inner))] = runs

    def _settle(self, runs: TrialRuns, became: TrialState, score: float | None = None) -> None:
        del self._open[runs.trial.number]
        frozen = self.study.tell(runs.trial, score, became)
        trials = self.study.get_trials(deepcopy=False)
        trial = read_trial(frozen)
        self.ran += 1
        self._failures = self._failures + 1 if became == TrialState.FAIL else 0
        self._observer.trial_ended(trial, is_best_so_far(frozen, trials))
        if self._failures >= MOST_FAILURES and all(one.state != TrialState.COMPLETE for one in trials):
            raise RunFailedError(
                f"the last {MOST_FAILURES} trials failed, and none is complete; the last one: {trial.reason}",
                "try the recipe by itself with `cse run`, or narrow the range",
            )


def _is_stuck(trials: list[FrozenTrial]) -> bool:
    """Return whether the sampler has just suggested known values: it would suggest them again."""
    return bool(trials) and SAME_AS in trials[-1].user_attrs


def _next_job(runs: TrialRuns, ended: Future[Result] | None) -> Job:
    """Return the next job of a trial, whose last one has ended.

    Raises:
        StopIteration: There is none; its value is the score.
        Exception: The trial has no score.
    """
    if ended is None:
        if (reason := runs.trial.user_attrs.get(REASON)) is not None:  # its driver was killed before it told
            raise RunFailedError(reason)
        return next(runs.jobs)
    error = ended.exception()
    return runs.jobs.send(ended.result()) if error is None else runs.jobs.throw(error)


def _ends_search(error: Exception, trial: Trial) -> bool:
    """Return whether no other trial could do better than one that raised this."""
    if isinstance(error, (TrackingError, DiskError, MissingError, OptunaError, SQLAlchemyError)):
        return True
    return OWN in trial.user_attrs and isinstance(error, CseError) and not isinstance(error, RunFailedError)
