"""Executors run jobs in this process or in a child process per device.

The driver is the process of the command. It submits jobs with their observers and receives futures. The observers
receive events of runs in other processes through `cse_cli.jobs.child`, in the thread that calls `submit`, `wait` or
`close`. If a process dies during a run, a new process resumes the run from its last checkpoint.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Self

from cse_cli.core.events import Event, Observer, Started, Warned
from cse_cli.core.garbage import free_memory
from cse_cli.core.results import Result
from cse_cli.core.threads import worker_environment
from cse_cli.jobs.child import LEAVE_SECONDS, Child, Failed, receive
from cse_cli.runs.claim import BusyError
from cse_cli.runs.index import result_of
from cse_cli.runs.record import delete_checkpoints, folder_of, last_end, log_of
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import CseError, RunFailedError

MOST_RETRIES = 3
"""Number of times that a job is repeated after its process died."""
STALL_SECONDS = 7200.0
"""Default time without an event after which a run is restarted. An evaluation between two events takes less."""
_POLL_SECONDS = 0.5


class Executor(ABC):
    """Runs jobs. A context manager that cancels all jobs if its block is left by an exception."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of jobs that run in parallel. It may change."""

    @property
    def one_by_one(self) -> bool:
        """Whether there is never more than one job at a time."""
        return self.slots == 1

    @abstractmethod
    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Submit a job and return a future for its result. The future raises `CseError` or `Pruned`."""

    @abstractmethod
    def wait(self) -> None:
        """Return when another future is done, a slot was added, or no job is left."""

    @abstractmethod
    def close(self, *, cancel: bool) -> None:
        """End all processes. With `cancel` the current runs stop, are recorded as STOPPED and can be resumed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel=kind is not None)


class SerialExecutor(Executor):
    """Runs each job in this process while it is submitted, or in several child processes."""

    slots = 1

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self._has_run = False

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Run a job. If its run cannot be resumed and the job permits it, start a new run.

        A signal raises its exception here, after the end of the run is recorded. The memory of the last run is freed
        before the next one: at the end of a process, it would only take time.
        """
        if self._has_run:
            free_memory()
        self._has_run = True
        future: Future[Result] = Future()
        try:
            try:
                future.set_result(self._execute(job, observer))
            except CseError as error:
                unusable = job.resume
                is_specific_to_run = error.exit_code == CseError.exit_code and not isinstance(
                    error, BusyError | RunFailedError
                )
                if unusable is None or not job.may_restart or not is_specific_to_run:
                    raise
                observer.observe(Warned(f"cannot resume run {unusable[:8]}, starting a new one: {error.message}"))
                future.set_result(self._execute(replace(job, resume=None, again=True), observer))
                delete_checkpoints(unusable)
        except Exception as error:
            future.set_exception(error)
        return future

    def wait(self) -> None:
        """Return: every job is done."""

    def close(self, *, cancel: bool) -> None:
        """Do nothing: no process is running."""

    def _execute(self, job: Job, observer: Observer) -> Result:
        if self._processes == 1:
            return execute(job, observer)
        from cse_cli.jobs.elastic import execute_in_processes  # imports torch's agent

        return execute_in_processes(job, self._processes, observer)


@dataclass(eq=False)
class Submission:
    """Submitted job, which resumes its run after a process died. `last_event_at` is on the clock `time.monotonic`."""

    job: Job
    observer: Observer
    future: Future[Result] = field(default_factory=Future)
    run_id: str | None = None
    deaths: int = 0
    last_event_at: float = 0.0

    def receive(self, event: Event) -> Exception | None:
        """Receive an event of the run, and return the reply of the observer."""
        self.last_event_at = time.monotonic()
        if isinstance(event, Started):
            self.run_id = event.run.run_id
        return receive(self.observer, event)

    @property
    def log(self) -> Path | None:
        """Log of the run, or None if it has not started."""
        return None if self.run_id is None else log_of(self.run_id)


class PoolExecutor(Executor):
    """Executor with a queue, whose jobs run in other processes and are repeated if a process dies."""

    def __init__(self) -> None:
        self._queue: deque[Submission] = deque()
        self._has_settled = False
        """Whether a job was settled since `wait` was called."""

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Queue a job."""
        self._queue.append(submission := Submission(job, observer))
        return submission.future

    def cancel_queued(self) -> None:
        """Cancel the queued jobs."""
        for submission in self._queue:
            submission.future.cancel()
        self._queue.clear()

    def settle(self, submission: Submission, end: Result | Exception) -> None:
        """Set the future of a job."""
        self._has_settled = True
        if isinstance(end, Exception):
            submission.future.set_exception(end)
        else:
            submission.future.set_result(end)

    def retry(self, submission: Submission, reason: str) -> None:
        """Queue a job again from its last checkpoint after its process died, or fail it after `MOST_RETRIES`.

        `reason` is the end of the process, such as "was killed by SIGKILL".
        """
        run_id = submission.run_id
        end = None if run_id is None else last_end(run_id)
        if run_id is not None and end == "finished" and (result := result_of(run_id)) is not None:
            self.settle(submission, result)  # it died before it sent the result
            return
        submission.deaths += 1
        is_resumable = run_id is not None and folder_of(run_id).exists() and end not in ("finished", "pruned")
        resumable = run_id if is_resumable else None
        if submission.deaths > MOST_RETRIES:
            action = "run it again" if resumable is None else f"resume it: cse run --resume {resumable[:8]}"
            where = "" if submission.log is None else f". Log: {submission.log}"
            message = f"{submission.deaths} processes died, the last one {reason}{where}"
            self.settle(submission, RunFailedError(message, action, code="jobs.process_died"))
            return
        what = "starting it again" if resumable is None else f"resuming run {resumable[:8]} from its last checkpoint"
        submission.observer.observe(Warned(f"{submission.job.name}: its process {reason}; {what}"))
        if resumable is not None:
            submission.job = replace(submission.job, resume=resumable, may_restart=True)
        self._queue.appendleft(submission)


class LocalExecutor(PoolExecutor):
    """Runs jobs in child processes of this machine, one per device.

    Ctrl-C in the terminal reaches only this process, which stops every run once.

    Args:
        devices: Device of each child process, as `cse_cli.core.devices.choose` takes it.
        stall_timeout: Seconds without an event after which a run is restarted.
    """

    def __init__(self, devices: Sequence[str], stall_timeout: float = STALL_SECONDS) -> None:
        super().__init__()
        self._devices = list(devices)
        self._stall_timeout = stall_timeout
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        """Number of devices."""
        return len(self._devices)

    def wait(self) -> None:
        """Assign jobs to free processes and receive events until a job is settled."""
        self._has_settled = False
        while (self._queue or self._busy()) and not self._has_settled:
            self._assign()
            self._receive_all()

    def close(self, *, cancel: bool) -> None:
        """End the child processes. A second Ctrl-C, while runs record their end, kills them immediately."""
        self.cancel_queued()
        try:
            for worker in self._workers:
                worker.end(cancel=cancel)
            until = time.monotonic() + LEAVE_SECONDS
            while self._workers and time.monotonic() < until:
                self._receive_all(closing=True)
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

    def _receive_all(self, *, closing: bool = False) -> None:
        """Receive messages of the child processes for a short time, and find those that died or hang."""
        watched = {worker.connection: worker for worker in (self._workers if closing else self._busy())}
        for ready in connection.wait(list(watched), _POLL_SECONDS):
            worker = watched[ready]  # type: ignore[index]
            try:
                self._take(worker, worker.connection.recv())
            except (EOFError, OSError):
                worker.wait()
                self._lose(worker, worker.submission, closing=closing)
        now = time.monotonic()
        for worker in [worker for worker in watched.values() if worker in self._workers]:
            submission = worker.submission
            if worker.has_exited():  # its own child processes keep the pipe open
                worker.kill()
                self._lose(worker, submission, closing=closing)
            elif submission is not None and not closing and now - submission.last_event_at > self._stall_timeout:
                worker.kill()
                self._lose(worker, submission, stalled(self._stall_timeout))

    def _take(self, worker: _Worker, message: Any) -> None:
        submission = worker.submission
        if submission is None:
            return
        if isinstance(message, Event):
            reply = submission.receive(message)
            if message.needs_reply:
                worker.connection.send(reply)
            return
        worker.submission = None
        self.settle(submission, message.error if isinstance(message, Failed) else message)

    def _lose(self, worker: _Worker, submission: Submission | None, reason: str = "", *, closing: bool = False) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        if submission is None:
            return
        if closing:
            submission.future.cancel()
        else:
            self.retry(submission, reason or worker.describe_exit(submission.log))


def stalled(seconds: float) -> str:
    """Return that a process was killed because its run reported no progress."""
    return f"was killed: no progress report for {seconds:,.0f} s"


class _Worker(Child):
    """Child process on one device."""

    def __init__(self, device: str, count: int) -> None:
        super().__init__(worker_environment(count, device))
        self.device = device
        self.submission: Submission | None = None

    def begin(self, submission: Submission) -> bool:
        """Send a job to the process, and return whether the process is alive."""
        try:
            self.connection.send(replace(submission.job, device=self.device))
        except OSError:
            self.wait()
            return False
        submission.last_event_at = time.monotonic()
        self.submission = submission
        return True
