"""Where runs are executed: in this process, or in a child process on each device. The only place that starts such.

A driver, the process of the command, submits jobs with their observers and gets futures. Its observers hear what a run
tells wherever that runs (`cse_cli.jobs.channel`), always in the thread that calls `submit`, `wait` or `close`. A
process that dies under a run is replaced, and the run goes on from its last checkpoint. `cse_cli.jobs.cluster` does the
same on many machines.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from cse_cli.core.console import Observer
from cse_cli.core.devices import worker_environment
from cse_cli.core.results import Result
from cse_cli.jobs.channel import Call, Failed, hear
from cse_cli.jobs.child import LEAVE_SECONDS, Child
from cse_cli.runs.claim import BusyError
from cse_cli.runs.index import result_of
from cse_cli.runs.record import delete_checkpoints, folder_of, last_end, log_of
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import CseError, RunFailedError

Key = TypeVar("Key")

MOST_RETRIES = 3
"""How often a job is run again whose process died."""
PATIENCE_SECONDS = 7200.0
"""A run that tells nothing for so long hangs: more than any evaluation between two reports takes."""
_POLL_SECONDS = 0.5


class Executor(ABC):
    """Runs jobs; a context manager that ends them all where its block is left by an exception."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many jobs run at once; may change."""

    @property
    def one_by_one(self) -> bool:
        """Whether one job follows the other, however long this executor lives."""
        return self.slots == 1

    @abstractmethod
    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Take a job; its future has the result, or what ended it: a `CseError`, or `Pruned`."""

    @abstractmethod
    def wait(self) -> None:
        """Return when another future is done, there is room for more jobs than before, or none is left."""

    @abstractmethod
    def close(self, *, cancel: bool) -> None:
        """End the processes; with `cancel` also the runs at work, each recorded as KILLED and resumable."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(cancel=kind is not None)


def as_ended(executor: Executor, jobs: Iterable[tuple[Key, Job, Observer]]) -> Iterator[tuple[Key, Result | CseError]]:
    """Run jobs, each taken from the iterable when there is room for it, and yield what became of each as it ends.

    Raises:
        Exception: What ended a job and is no `CseError`.
    """
    left, at_work = iter(jobs), dict[Future[Result], Key]()
    while True:
        while len(at_work) < executor.slots and (job := next(left, None)) is not None:
            at_work[executor.submit(job[1], job[2])] = job[0]
        if not at_work:
            return
        executor.wait()
        for future in [future for future in at_work if future.done()]:
            yield at_work.pop(future), outcome(future)


def outcome(future: Future[Result]) -> Result | CseError:
    """Return the result of a future that is done, or why there is none."""
    try:
        return future.result()
    except CseError as error:
        return error


def _free_memory() -> None:
    """Give back what a run has left: the next one, or another program, needs it."""
    gc.collect()  # models are in reference cycles, and errors hold models
    torch.cuda.empty_cache()  # does nothing where CUDA is not in use
    with suppress(OSError, AttributeError):  # another C library than glibc, which kept 2.2 GB of ten runs, not 0.5
        CDLL("libc.so.6").malloc_trim(0)


class SerialExecutor(Executor):
    """Runs each job in this process, as it is submitted.

    Args:
        processes: That share each run; more than one are children of this process.
    """

    slots = 1

    def __init__(self, processes: int = 1) -> None:
        self._execute = execute if processes == 1 else partial(_run_in_processes, processes)

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Run a job to its end; one that may is started anew where the run that it resumes cannot go on.

        A signal is raised here, after the end of the run is recorded.
        """
        future: Future[Result] = Future()
        try:
            try:
                future.set_result(self._execute(job, observer))
            except CseError as error:
                lost = job.resume
                if lost is None or not job.may_restart or not _may_restart(error):
                    raise
                observer.warned(f"run {lost[:8]} cannot be resumed, so a new one starts: {error.message}")
                future.set_result(self._execute(replace(job, resume=None, again=True), observer))
                delete_checkpoints(lost)
        except Exception as error:
            future.set_exception(error)
        finally:
            _free_memory()
        return future

    def wait(self) -> None:
        """Return: every job has ended."""

    def close(self, *, cancel: bool) -> None:
        """Do nothing: no process was started."""


def _run_in_processes(processes: int, job: Job, observer: Observer) -> Result:
    from cse_cli.jobs.distributed import run_in_processes  # torch's agent

    return run_in_processes(job, processes, observer)


def _may_restart(error: CseError) -> bool:
    """Return whether a new run may succeed although this one could not be resumed."""
    return error.exit_code == CseError.exit_code and not isinstance(error, BusyError)


@dataclass(eq=False)
class Submission:
    """A job that an executor has taken.

    Args:
        job: What to run; it resumes its own run once that has begun and its process died.
        run_id: Of the run that has begun.
        losses: How often its process died.
        heard: When it last told something, on the clock `time.monotonic`.
    """

    job: Job
    observer: Observer
    future: Future[Result] = field(default_factory=Future)
    run_id: str | None = None
    losses: int = 0
    heard: float = 0.0

    def hear(self, call: Call) -> Exception | None:
        """Take a call of the run, and return the driver's answer."""
        self.heard = time.monotonic()
        if call.method == "started":
            self.run_id = call.args[0].run_id
        return hear(self.observer, call)

    @property
    def log(self) -> Path | None:
        """The log of the run that has begun."""
        return None if self.run_id is None else log_of(self.run_id)


class PoolExecutor(Executor):
    """An executor whose jobs run elsewhere: a queue, and what is done when a process dies."""

    def __init__(self) -> None:
        self._queue: deque[Submission] = deque()
        self._ended = False
        """Whether a future is done since `wait` was called."""

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Queue a job."""
        self._queue.append(submission := Submission(job, observer))
        return submission.future

    def cancel_queued(self) -> None:
        """Begin no job more."""
        for submission in self._queue:
            submission.future.cancel()
        self._queue.clear()

    def settle(self, submission: Submission, end: Result | Exception) -> None:
        """Give a future what became of its job."""
        self._ended = True
        if isinstance(end, Exception):
            submission.future.set_exception(end)
        else:
            submission.future.set_result(end)

    def retry(self, submission: Submission, why: str) -> None:
        """Queue a job again whose process died, from its last checkpoint; at last its future fails.

        Args:
            submission: Whose process is gone.
            why: How it ended, as in "its process was ended by SIGKILL".
        """
        run_id = submission.run_id
        if run_id is not None and last_end(run_id) == "finished" and (result := result_of(run_id)) is not None:
            self.settle(submission, result)  # it died before it could send it
            return
        submission.losses += 1
        begun = _unfinished(run_id)
        if submission.losses > MOST_RETRIES:
            action = "run it again" if begun is None else f"resume it: cse run --resume {begun[:8]}"
            where = "" if submission.log is None else f"; its log: {submission.log}"
            error = RunFailedError(f"its process {why}, {submission.losses} times in all{where}", action)
            self.settle(submission, error)
            return
        how = "starts again" if begun is None else f"resumes from the last checkpoint of run {begun[:8]}"
        submission.observer.warned(f"{submission.job.name}: its process {why}; it {how}")
        if begun is not None:
            submission.job = replace(submission.job, resume=begun, may_restart=True)
        self._queue.appendleft(submission)


def _unfinished(run_id: str | None) -> str | None:
    """Return the ID of a run that has begun and can be resumed."""
    if run_id is None or not folder_of(run_id).exists() or last_end(run_id) in ("finished", "pruned"):
        return None
    return run_id


class LocalExecutor(PoolExecutor):
    """Runs jobs in child processes of this machine, one on each device, which take one job after the other.

    Ctrl-C at the terminal reaches this process alone, which ends each run once.

    Args:
        devices: As `cse_cli.core.devices.choose` takes them, one for each child.
        patience: Seconds without a word from a run after which its process is killed.
    """

    def __init__(self, devices: Sequence[str], patience: float = PATIENCE_SECONDS) -> None:
        super().__init__()
        self._devices = list(devices)
        self._patience = patience
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        """One a device."""
        return len(self._devices)

    def wait(self) -> None:
        """Give jobs to free children and hear those at work, until one has ended."""
        self._ended = False
        while (self._queue or self._busy()) and not self._ended:
            self._assign()
            self._hear_all()

    def close(self, *, cancel: bool) -> None:
        """End the children. A second Ctrl-C while they record the end of their runs kills them at once."""
        self.cancel_queued()
        try:
            for worker in self._workers:
                worker.end(at_once=cancel)
            until = time.monotonic() + LEAVE_SECONDS
            while self._workers and time.monotonic() < until:
                self._hear_all(leaving=True)
        finally:
            for worker in self._workers:
                worker.kill()
            self._workers.clear()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.submission is not None]

    def _assign(self) -> None:
        while self._queue and len(self._busy()) < self.slots:
            worker = next((worker for worker in self._workers if worker.submission is None), None)
            if worker is None:
                used = [worker.device for worker in self._workers]
                device = next(device for device in self._devices if used.count(device) < self._devices.count(device))
                worker = _Worker(device, self.slots)
                self._workers.append(worker)
            if not worker.begin(submission := self._queue.popleft()):  # it died between two jobs
                self._lose(worker, submission)

    def _hear_all(self, *, leaving: bool = False) -> None:
        """Take what the children tell, for a short while; notice those that died or hang."""
        busy = {worker.connection: worker for worker in (self._workers if leaving else self._busy())}
        for ready in connection.wait(list(busy), _POLL_SECONDS):
            worker = busy[ready]  # type: ignore[index]
            try:
                self._take(worker, worker.connection.recv())
            except (EOFError, OSError):
                worker.wait()
                self._lose(worker, worker.submission, leaving=leaving)
        now = time.monotonic()
        for worker in [worker for worker in busy.values() if worker in self._workers]:
            submission = worker.submission
            if worker.has_died():  # and processes of its own keep the pipe open
                worker.kill()
                self._lose(worker, submission, leaving=leaving)
            elif submission is not None and not leaving and now - submission.heard > self._patience:
                worker.kill()
                self._lose(worker, submission, f"told nothing for {self._patience:,.0f} s and was killed")

    def _take(self, worker: _Worker, message: Any) -> None:
        submission = worker.submission
        if submission is None:
            return
        if isinstance(message, Call):
            answer = submission.hear(message)
            if message.asks:
                worker.connection.send(answer)
            return
        worker.submission = None
        self.settle(submission, message.error if isinstance(message, Failed) else message)

    def _lose(self, worker: _Worker, submission: Submission | None, why: str = "", *, leaving: bool = False) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        if submission is None:
            return
        if leaving:
            submission.future.cancel()
        else:
            self.retry(submission, why or worker.how_it_ended(submission.log))


class _Worker(Child):
    """A child process on one device."""

    def __init__(self, device: str, count: int) -> None:
        super().__init__(worker_environment(count, device))
        self.device = device
        self.submission: Submission | None = None

    def begin(self, submission: Submission) -> bool:
        """Give it a job; return whether it could take it."""
        try:
            self.connection.send(replace(submission.job, device=self.device))
        except OSError:
            self.wait()
            return False
        submission.heard = time.monotonic()
        self.submission = submission
        return True
