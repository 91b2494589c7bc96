"""One process's share of a study: every run that is neither finished nor claimed by another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import sleep
from typing import Protocol

from cse_cli.job import Job
from cse_cli.observer import Observer
from cse_cli.results import Result
from cse_cli.running import execute
from cse_cli.study.claims import claim
from cse_cli.study.plan import Failure
from cse_cli.study.tasks import Task, failed_since, is_done, recorded, to_resume
from registry.errors import CseError, RunFailedError, TrackingError

POLL_SECONDS = 1.0
"""Between two looks at claims that other processes hold."""


class Watcher(Observer, Protocol):
    """Hears of a study's progress, and of that of its runs."""

    def begins(self, task: Task, number: int, total: int) -> None:
        """A run starts, or goes on; `total` is how many were to be done at first."""

    def ended(self, task: Task, result: Result) -> None:
        """A run came to its end."""

    def elsewhere(self, task: Task) -> None:
        """Another process has done a run meanwhile."""

    def waits(self, count: int) -> None:
        """Only runs that other processes are at are left."""

    def failed(self, what: str, error: Exception) -> None:
        """A run could not be done."""


class Share:
    """The work of one process.

    Args:
        tasks: All that is to be done, by whichever process.
        device: As `cse_cli.devices.choose` takes it.
        watcher: Is told of everything.
    """

    def __init__(self, tasks: Sequence[Task], device: str, watcher: Watcher) -> None:
        self.device = device
        self.watcher = watcher
        self.failures: list[Failure] = []
        self.ran = 0
        self._all = list(tasks)
        self._open = list(tasks)
        self._since = datetime.now(UTC).replace(microsecond=0)

    def work(self) -> None:
        """Do what is free; wait for what others are at, and take over what they leave undone.

        Raises:
            TrackingError: Nothing can be recorded any more.
        """
        while self._open:
            if not any(self._offer(task) for task in list(self._open)):
                self.watcher.waits(len(self._open))
                sleep(POLL_SECONDS)

    def _offer(self, task: Task) -> bool:
        """Settle a task unless another process has it; tell whether it is settled."""
        with claim(*task.key) as ours:
            if not ours:
                return False
            self._open.remove(task)
            try:
                self._settle(task)
            except TrackingError:
                raise
            except CseError as error:
                self.failures.append(Failure(task, str(error), error.exit_code))
                self.watcher.failed(task.label, error)
        return True

    def _settle(self, task: Task) -> None:
        known = recorded(task)
        if is_done(known):
            self.watcher.elsewhere(task)
            return
        if (tried := failed_since(known, self._since)) is not None:
            raise RunFailedError(
                f"run {tried.run_id[:8]} of another process failed", f"`cse runs show {tried.run_id[:8]}` shows it"
            )
        self.watcher.begins(task, self._all.index(task) + 1, len(self._all))
        job = Job(task.cell.load(task.seed), task.seed, self.device, to_resume(task, known), task.tag)
        self.watcher.ended(task, self._execute(job))
        self.ran += 1

    def _execute(self, job: Job) -> Result:
        """Run a job; one whose checkpoint cannot be used starts anew, as nobody can say so for each cell."""
        try:
            return execute(job, self.watcher)
        except CseError as error:
            if job.resume is None or error.exit_code != CseError.exit_code:
                raise
            self.watcher.warned(f"run {job.resume.run_id[:8]} cannot go on, so it starts anew: {error.message}")
        return execute(replace(job, resume=None), self.watcher)
