"""The budget loop: takes trials of a study until all are done, whoever else takes some.

Several workers on one machine: a process each, one a CUDA device, told apart by nothing but their device.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from cse_cli.core.devices import environment
from cse_cli.core.paths import home
from cse_cli.tracking import stop_if_asked
from cse_cli.tuning import samplers as sampling
from cse_cli.tuning import study as lost
from cse_cli.tuning import study as words
from cse_cli.tuning.config import Ending, Plan, Watcher
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget
from registry.errors import CseError, RunFailedError, TrackingError

POLL_SECONDS = 1.0
"""Between two looks at trials that other processes are at."""
MOST_FAILURES = 5
"""Trials failed one after the other, with none complete before, that end a search."""

Objective = Callable[[optuna.Trial], float]
"""Returns a trial's score; its values are in `trial.params`. Raises `TrialFailed`, or Optuna's `TrialPruned`."""


class TrialFailed(Exception):  # noqa: N818 - what came of the trial, beside Optuna's TrialPruned
    """A trial cannot be done, by its own fault: it counts, and the search goes on."""


class _Copy(Exception):  # noqa: N818
    """Another trial has had the same values: this one is not run, and does not count."""


class Worker:
    """One process's share of a study.

    Args:
        study: As `open_study` returns it.
        plan: What it is to do.
        objective: One trial.
        watcher: Is told of everything.
    """

    def __init__(self, study: optuna.Study, plan: Plan, objective: Objective, watcher: Watcher) -> None:
        self.study = study
        self.plan = replace(plan, trials=budget(study))
        self.objective = objective
        self.watcher = watcher
        self.ran = 0
        self._space = sampling.space(plan.knobs)
        self._points = sampling.points(self._space)
        self._place = address(plan.storage, plan.name)
        self._lock = self._place.lock(plan.name)
        self._until = None if plan.timeout is None else time.monotonic() + plan.timeout
        self._current: int | None = None
        self._failures = 0
        self._last_reason: str | None = None

    def work(self) -> Ending:
        """Do trials until none is left to begin; return why.

        Raises:
            TrackingError: The storage does not answer any more; the trial at work will be repeated.
            RunFailedError: Trials fail one after the other.
        """
        waiting = 0
        while True:
            stop_if_asked()
            if self._until is not None and time.monotonic() >= self._until:
                return "timeout"
            try:
                ending, waiting = self._turn(waiting)
            except (SQLAlchemyError, StorageInternalError) as error:
                first = str(error.__cause__ or error).strip().partition("\n")[0]
                raise TrackingError(
                    f"--storage: {self._place.shown} does not answer any more: {first}",
                    "the study is kept there: the same command goes on with it",
                ) from error
            if ending is not None:
                return ending
            if self._failures >= MOST_FAILURES and not self._any_complete():
                raise RunFailedError(
                    f"the last {MOST_FAILURES} trials failed, and none is complete; the last one: {self._last_reason}",
                    "try the recipe by itself with `cse run`, or narrow the range",
                )

    def _turn(self, waiting: int) -> tuple[Ending | None, int]:
        """Do one trial, or find that there is none; return why it is over, and how many trials others are at."""
        self._lock.acquire()
        try:
            for number, gone in lost.sweep(self.study):
                self.watcher.repeats(number, gone)
            trials = self.study.get_trials(deepcopy=False)
            running = sum(trial.state == TrialState.RUNNING for trial in trials)
            done = len(words.settled(trials))
            if done >= self._budget():
                return "budget", 0
            if done + running < self._budget() and self._has_more(trials):
                self._one(trials)
                return None, 0
        finally:
            self._lock.release()
        if not running:
            return "exhausted", 0
        if running != waiting:
            self.watcher.waits(running)
        time.sleep(POLL_SECONDS)
        return None, running

    def _budget(self) -> int:
        return budget(self.study)  # others may have raised it

    def _has_more(self, trials: list[FrozenTrial]) -> bool:
        """Tell whether a trial is left to begin; one is queued where chance would hardly find the last points."""
        if any(trial.state == TrialState.WAITING for trial in trials):
            return True
        if self.plan.sampler == "grid":
            return False
        if self._points is None:
            return True
        left = sampling.untried(self._points, [words.fixed(trial) for trial in trials])
        if left and trials and words.SAME_AS in trials[-1].user_attrs:
            self.study.enqueue_trial(sampling.any_of(left, len(trials)))
        return bool(left)

    def _one(self, trials: list[FrozenTrial]) -> None:
        """Do the next trial; the lock is let go as soon as it has its values."""
        # A sampler that has just asked for what is known already would ask for it again.
        stuck = bool(trials) and words.SAME_AS in trials[-1].user_attrs
        plan = replace(self.plan, sampler="random") if stuck else self.plan
        self.study.sampler = sampling.sampler(plan, self._space, len(trials))
        self._current = None
        try:
            # `optimize`, because the heartbeat lives in it alone.
            self.study.optimize(self._attempt, n_trials=1, catch=(TrialFailed, _Copy))
        except (UpdateFinishedTrialError, AssertionError):
            if not self._was_taken():  # Optuna asserts that nobody else tells how a trial ended
                raise
            self.watcher.warned(f"trial {self._current} was silent for so long that another worker repeats it")
            return
        except BaseException:
            self._leave()
            raise
        self._tell()

    def _attempt(self, trial: optuna.Trial) -> float:
        self._current = trial.number
        try:
            lost.sign(trial)
            self._choose(trial)
        finally:
            self._lock.release()
        self.watcher.trial_began(trial.number, trial.params, self._budget())
        try:
            return self.objective(trial)
        except optuna.TrialPruned:
            raise
        except TrialFailed as failed:
            trial.set_user_attr(words.REASON, str(failed))
            raise
        except BaseException:
            with suppress(SQLAlchemyError, StorageInternalError, UpdateFinishedTrialError):
                trial.set_user_attr(words.INTERRUPTED, True)
            raise

    def _choose(self, trial: optuna.Trial) -> None:
        """Give a trial its values; one that another had already is not run."""
        own = words.OWN in trial.user_attrs
        held = sampling.own_values(self.plan.knobs) if own else self._space
        for name, distribution in self._space.items():
            if name in held:
                sampling.suggest(trial, name, distribution)
        for other in () if own else words.taken(self.study.get_trials(deepcopy=False), trial.number):
            if sampling.same(other.params, trial.params):
                trial.set_user_attr(words.SAME_AS, other.number)
                raise _Copy

    def _tell(self) -> None:
        trials = self.study.get_trials(deepcopy=False)
        trial = next(t for t in trials if t.number == self._current)
        if words.state(trial) is None:
            return
        self.ran += 1
        ended = words.ended(trial, trials)
        self._failures = self._failures + 1 if ended.state == "failed" else 0
        self._last_reason = ended.reason
        self.watcher.trial_ended(ended)

    def _any_complete(self) -> bool:
        return any(t.state == TrialState.COMPLETE for t in self.study.get_trials(deepcopy=False))

    def _was_taken(self) -> bool:
        """Tell whether another worker has failed the trial at work meanwhile."""
        found = [t for t in self.study.get_trials(deepcopy=False) if t.number == self._current]
        return any(t.state == TrialState.FAIL and words.INTERRUPTED not in t.user_attrs for t in found)

    def _leave(self) -> None:
        """Give the trial at work back: whoever goes on with the study repeats it."""
        if self._current is not None:
            with suppress(ValueError, SQLAlchemyError, StorageInternalError):
                self.study.tell(self._current, state=TrialState.FAIL, skip_if_finished=True)


POLL_SECONDS_processes = 0.5
LEAVE_SECONDS = 30.0
"""How long a worker that is asked to end may take to give its trial back."""
_TOLD_LINES = 8


@dataclass(frozen=True)
class _Started:
    process: subprocess.Popen[bytes]
    log: Path


class Crew:
    """The workers of one command.

    Args:
        plan: What each is to do.
        devices: One for each worker.
        parent: The search's run in the tracking store.
        watcher: Is told of every trial of this machine's workers as it ends.
    """

    def __init__(self, plan: Plan, devices: Sequence[str], parent: str | None, watcher: Watcher) -> None:
        self.plan = plan
        self.watcher = watcher
        self.ran = 0
        self._devices = devices
        self._parent = parent
        self._workers: list[_Started] = []

    def work(self, study: optuna.Study) -> None:
        """Start the workers and wait for them.

        Raises:
            CseError: None of them came to its end.
        """
        seen = {t.number for t in words.settled(study.get_trials(deepcopy=False))}
        try:
            for number, device in enumerate(self._devices):
                self._workers.append(self._start(number, device))
            while any(worker.process.poll() is None for worker in self._workers):
                self._tell(study, seen)
                time.sleep(POLL_SECONDS_processes)
            self._tell(study, seen)
        except BaseException:
            self._end()
            raise
        self._report()

    def _start(self, number: int, device: str) -> _Started:
        plan = replace(self.plan, device=device, workers=1, join=True, trials=None)
        log = home() / "tuning" / f"{self.plan.name}-worker-{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            # A session of its own: Ctrl-C reaches this process alone, which asks each worker once to end.
            process = subprocess.Popen(
                [sys.executable, "-m", "cse_cli.tuning", self._parent or ""],
                env=environment(len(self._devices), device),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if process.stdin is not None:
            # Not on the command line: other users may read that, and the address has a password.
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(plan.to_json().encode())
        return _Started(process, log)

    def _tell(self, study: optuna.Study, seen: set[int]) -> None:
        trials = study.get_trials(deepcopy=False)
        for trial in words.settled(trials):
            if trial.number not in seen:
                seen.add(trial.number)
                self.ran += 1
                self.watcher.trial_ended(words.ended(trial, trials))

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
        until = time.monotonic() + LEAVE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _report(self) -> None:
        failed = [worker for worker in self._workers if worker.process.returncode != 0]
        for worker in failed:
            self.watcher.warned(f"a worker ended with code {worker.process.returncode}:\n{_end_of(worker.log)}")
        if failed and len(failed) == len(self._workers):
            raise CseError(
                "no worker came to its end: " + _end_of(failed[0].log),
                f"the study is kept; their logs are {self._workers[0].log.parent}/{self.plan.name}-worker-*.log",
            )


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    return "\n".join(lines[-_TOLD_LINES:])
