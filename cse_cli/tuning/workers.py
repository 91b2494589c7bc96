"""The budget loop of one worker, and several workers on one machine: a process each, one a CUDA device.

    python -m cse_cli.tuning.workers [RUN]

is one such process: its `SearchConfig` comes on stdin, RUN is the search's run in the tracking store.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from cse_cli import tracking
from cse_cli.core.devices import worker_environment
from cse_cli.core.processes import end_with_parent
from cse_cli.tuning import samplers
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.objective import RecipeObjective, TrialFailed
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.results import is_best_so_far, read_trial
from cse_cli.tuning.storage import address, folder
from cse_cli.tuning.study import (
    INTERRUPTED,
    OWN,
    REASON,
    SAME_AS,
    budget,
    open_study,
    retry_stale_trials,
    settled,
    sign,
    state,
    values_of,
)
from registry.errors import CseError, RunFailedError, TrackingError

POLL_SECONDS = 1.0
"""Between two looks at trials of other processes."""
LEAVE_SECONDS = 30.0
"""How long a worker that is asked to end may take to give its trial back."""
MOST_FAILURES = 5
"""Trials failed one after the other, with none complete before, that end a search."""
_LOG_LINES = 8

Objective = Callable[[optuna.Trial], float]
"""Returns a trial's score; its values are in `trial.params`. Raises `TrialFailed`, or Optuna's `TrialPruned`."""


class _Duplicate(Exception):  # noqa: N818
    """Another trial has had the same values: this one is not run, and does not count."""


class Worker:
    """One process's share of a study.

    Args:
        study: As `open_study` returns it.
        config: Of the search.
        objective: One trial.
        observer: Of everything.
    """

    def __init__(
        self, study: optuna.Study, config: SearchConfig, objective: Objective, observer: SearchObserver
    ) -> None:
        self.study = study
        self.config = config.model_copy(update={"trials": budget(study)})
        self.objective = objective
        self.observer = observer
        self.ran = 0
        self._space = samplers.distributions(config.parameters)
        self._points = samplers.all_points(self._space)
        self._place = address(config.storage, config.name)
        self._lock = self._place.lock(config.name)
        self._until = None if config.timeout is None else time.monotonic() + config.timeout
        self._current: int | None = None
        self._failures = 0
        self._last_reason: str | None = None

    def work(self) -> Ending:
        """Do trials until none is left to begin; return why.

        Raises:
            TrackingError: The storage does not answer any more; the current trial will be repeated.
            RunFailedError: Trials fail one after the other.
        """
        waiting = 0
        while True:
            tracking.stop_if_asked()
            if self._until is not None and time.monotonic() >= self._until:
                return "timeout"
            try:
                ending, running = self._turn()
            except (SQLAlchemyError, StorageInternalError) as error:
                first = str(error.__cause__ or error).strip().partition("\n")[0]
                raise TrackingError(
                    f"--storage: {self._place.shown} does not answer any more: {first}",
                    "the study is kept there: the same command goes on with it",
                ) from error
            if ending is not None:
                return ending
            if running:
                if running != waiting:
                    self.observer.waiting(running)
                time.sleep(POLL_SECONDS)
            waiting = running
            if self._failures >= MOST_FAILURES and not self._any_complete():
                raise RunFailedError(
                    f"the last {MOST_FAILURES} trials failed, and none is complete; the last one: {self._last_reason}",
                    "try the recipe by itself with `cse run`, or narrow the range",
                )

    def _turn(self) -> tuple[Ending | None, int]:
        """Do one trial; return why there is none, or how many trials of other processes are waited for."""
        with self._lock:
            for number, lost in retry_stale_trials(self.study):
                self.observer.retried(number, lost)
            trials = self.study.get_trials(deepcopy=False)
            running = sum(trial.state == TrialState.RUNNING for trial in trials)
            done, wanted = len(settled(trials)), budget(self.study)  # others may have raised it
            if done >= wanted:
                return "budget", 0
            if done + running < wanted and self._has_more(trials):
                self._do_next(trials)  # releases the lock once the trial has its values
                return None, 0
        return (None, running) if running else ("exhausted", 0)

    def _has_more(self, trials: list[FrozenTrial]) -> bool:
        """Return whether a trial is left to begin; queue one where chance would hardly find the last points."""
        if any(trial.state == TrialState.WAITING for trial in trials):
            return True
        if self.config.sampler == "grid":
            return False
        if self._points is None:
            return True
        left = samplers.untried(self._points, [values_of(trial) for trial in trials])
        if left and trials and SAME_AS in trials[-1].user_attrs:
            self.study.enqueue_trial(samplers.random_point(left, len(trials)))
        return bool(left)

    def _do_next(self, trials: list[FrozenTrial]) -> None:
        # A sampler that has just suggested known values would suggest them again.
        stuck = bool(trials) and SAME_AS in trials[-1].user_attrs
        config = self.config.model_copy(update={"sampler": "random"}) if stuck else self.config
        self.study.sampler = samplers.make_sampler(config, self._space, len(trials))
        self._current = None
        try:
            # `optimize` rather than `ask` and `tell`: it alone sends heartbeats.
            self.study.optimize(self._attempt, n_trials=1, catch=(TrialFailed, _Duplicate))
        except (UpdateFinishedTrialError, AssertionError):
            if not self._was_taken():  # Optuna asserts that nobody else tells how a trial ended
                raise
            self.observer.warned(f"trial {self._current} was silent for so long that another worker repeats it")
            return
        except BaseException:
            if self._current is not None:  # give the trial back: whoever goes on with the study repeats it
                with suppress(ValueError, SQLAlchemyError, StorageInternalError):
                    self.study.tell(self._current, state=TrialState.FAIL, skip_if_finished=True)
            raise
        self._report()

    def _attempt(self, trial: optuna.Trial) -> float:
        self._current = trial.number
        try:
            sign(trial)
            self._choose_values(trial)
        finally:
            self._lock.release()
        self.observer.trial_began(trial.number, trial.params, budget(self.study))
        try:
            return self.objective(trial)
        except optuna.TrialPruned:
            raise
        except TrialFailed as failed:
            trial.set_user_attr(REASON, str(failed))
            raise
        except BaseException:
            with suppress(SQLAlchemyError, StorageInternalError, UpdateFinishedTrialError):
                trial.set_user_attr(INTERRUPTED, True)
            raise

    def _choose_values(self, trial: optuna.Trial) -> None:
        """Give a trial its values; one that another had already is not run."""
        own = OWN in trial.user_attrs
        held = samplers.own_values(self.config.parameters) if own else self._space
        for name, distribution in self._space.items():
            if name in held:
                samplers.suggest(trial, name, distribution)
        if own:
            return
        for other in self.study.get_trials(deepcopy=False):
            counts = state(other) is not None or (other.state == TrialState.RUNNING and other.number != trial.number)
            if counts and samplers.is_same_point(other.params, trial.params):
                trial.set_user_attr(SAME_AS, other.number)
                raise _Duplicate

    def _report(self) -> None:
        trials = self.study.get_trials(deepcopy=False)
        frozen = next(trial for trial in trials if trial.number == self._current)
        trial = read_trial(frozen)
        if trial is None:
            return
        self.ran += 1
        self._failures = self._failures + 1 if trial.state == "failed" else 0
        self._last_reason = trial.reason
        self.observer.trial_ended(trial, is_best_so_far(frozen, trials))

    def _any_complete(self) -> bool:
        return any(trial.state == TrialState.COMPLETE for trial in self.study.get_trials(deepcopy=False))

    def _was_taken(self) -> bool:
        """Return whether another worker has failed the current trial meanwhile."""
        found = [trial for trial in self.study.get_trials(deepcopy=False) if trial.number == self._current]
        return any(trial.state == TrialState.FAIL and INTERRUPTED not in trial.user_attrs for trial in found)


class WorkerProcesses:
    """The workers of one command.

    Args:
        config: Of the search.
        devices: One for each worker.
        parent: The search's run in the tracking store.
        observer: Of every trial of this machine's workers as it ends.
    """

    def __init__(
        self, config: SearchConfig, devices: Sequence[str], parent: str | None, observer: SearchObserver
    ) -> None:
        self.config = config
        self.observer = observer
        self.ran = 0
        self._devices = devices
        self._parent = parent
        self._processes: list[subprocess.Popen[bytes]] = []

    def work(self, study: optuna.Study) -> tuple[int, Ending]:
        """Start the workers and wait for them; return how many trials came to their end, and why no more.

        Raises:
            CseError: None of them came to its end.
        """
        seen = {trial.number for trial in settled(study.get_trials(deepcopy=False))}
        try:
            for number, device in enumerate(self._devices):
                self._processes.append(self._start(number, device))
            while any(process.poll() is None for process in self._processes):
                self._report(study, seen)
                time.sleep(POLL_SECONDS / 2)
            self._report(study, seen)
        except BaseException:
            self._end()
            raise
        self._check_codes()
        if len(settled(study.get_trials(deepcopy=False))) >= budget(study):
            return self.ran, "budget"
        return self.ran, "exhausted" if self.config.timeout is None else "timeout"

    def _start(self, number: int, device: str) -> subprocess.Popen[bytes]:
        here = {"device": device, "workers": 1, "join": True, "trials": None}
        log = self._log(number)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            # A session of its own: Ctrl-C reaches this process alone, which asks each worker once to end.
            process = subprocess.Popen(
                [sys.executable, "-m", "cse_cli.tuning.workers", self._parent or ""],
                env=worker_environment(len(self._devices), device),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if process.stdin is not None:
            # Not on the command line: other users may read that, and the address has a password.
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(self.config.model_copy(update=here).model_dump_json().encode())
        return process

    def _log(self, number: int | str) -> Path:
        return folder() / f"{self.config.name}-worker-{number}.log"

    def _report(self, study: optuna.Study, seen: set[int]) -> None:
        trials = study.get_trials(deepcopy=False)
        for frozen in settled(trials):
            trial = read_trial(frozen)
            if trial is not None and trial.number not in seen:
                seen.add(trial.number)
                self.ran += 1
                self.observer.trial_ended(trial, is_best_so_far(frozen, trials))

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        until = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _check_codes(self) -> None:
        """Warn of workers that failed; raise where all did."""
        ends = {
            number: "\n".join(self._log(number).read_text("utf-8", "replace").strip().split("\n")[-_LOG_LINES:])
            for number, process in enumerate(self._processes)
            if process.returncode != 0
        }
        for number, end in ends.items():
            self.observer.warned(f"a worker ended with code {self._processes[number].returncode}:\n{end}")
        if ends and len(ends) == len(self._processes):
            raise CseError(f"no worker came to its end: {ends[0]}", f"the study is kept; their logs: {self._log('*')}")


def work(study: optuna.Study, config: SearchConfig, parent: str | None, observer: SearchObserver) -> tuple[int, Ending]:
    """Do this process's share of a study; return how many trials came to their end, and why no more.

    Args:
        study: As `open_study` returns it.
        config: Of the search.
        parent: The search's run in the tracking store.
        observer: Of everything.
    """
    recipe = config.load_base().recipe
    study.pruner = samplers.make_pruner(config, recipe.train.steps, recipe.train.evaluate_every)
    objective = RecipeObjective(config, config.seeds_of(recipe), parent, observer)
    worker = Worker(study, config, objective, observer)
    ending = worker.work()
    return worker.ran, ending


def main() -> int:
    """Do the share of a worker process, its lines in its log; return the exit code."""
    end_with_parent()
    try:
        with tracking.ending(tracking.NullTracker()):  # nothing to record here; a signal ends the process in order
            config = SearchConfig.model_validate_json(sys.stdin.read())
            with TuneScreen() as screen:
                work(open_study(config), config, sys.argv[1] or None, screen)
    except CseError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
