"""A study as it is to be run: its cells, its seeds, and what is finished before anything starts.

The runs of a study: cells × seeds, each different experiment once, and what the store has of them.

Who computes what: a claim a run, held by an open file's lock, so that it ends with its process however that ends.

One process's share of a study: every run that is neither finished nor claimed by another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import sleep
from typing import Protocol

from filelock import FileLock, Timeout

from cse_cli.core.console import Observer
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, is_finished, unfinished
from cse_cli.recipe.cells import Cell, cells, tag
from cse_cli.recipe.study import Study, load_study
from cse_cli.tracking import location as tags
from cse_cli.tracking.reader import RecordedRun, finished_results, list_runs
from cse_cli.tracking.unsent import waiting
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import CseError, RunFailedError, TrackingError


@dataclass(frozen=True)
class Plan:
    """What a study asks for.

    Args:
        asked: As the command line names the study.
        tasks: Every run once.
        before: Those that are finished, with their results.
    """

    asked: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    tasks: tuple[Task, ...]
    before: dict[Key, Result] = field(repr=False)

    @property
    def open(self) -> list[Task]:
        """What is to be run."""
        return [task for task in self.tasks if task.key not in self.before]


@dataclass(frozen=True)
class Failure:
    """A run that could not be done.

    Args:
        message: Why, and what to do.
    """

    task: Task
    message: str
    exit_code: int


@dataclass(frozen=True)
class Outcome:
    """What is there after a study has run.

    Args:
        plan: What was asked for.
        results: Everything finished, by recipe hash and in order of seed.
        ran: How many of the runs these processes did.
        failures: What could not be done.
    """

    plan: Plan
    results: dict[str, list[Result]] = field(repr=False)
    ran: int
    failures: list[Failure]


def plan(asked: str, seeds: Sequence[int], overrides: Sequence[str], unset: Sequence[str]) -> Plan:
    """Read a study, load the recipe of every cell, and look up what is finished.

    Args:
        asked: Name or path of the study.
        seeds: Instead of its own; empty for those.
        overrides: Laid over every cell.
        unset: Taken out of every cell.

    Raises:
        CseError: The study or a recipe of its is not valid.
    """
    study = load_study(asked)
    made = cells(study, overrides, unset)
    chosen = tuple(seeds) or study.seed_list
    todo = tasks(study, made, chosen)
    return Plan(asked, study, tuple(made), chosen, tuple(todo), finished(task.key for task in todo))


def outcome(made: Plan, ran: int, failures: list[Failure]) -> Outcome:
    """Read what the store has of a study now."""
    results: dict[str, list[Result]] = {cell.hash: [] for cell in made.cells}
    for (recipe_hash, _), result in sorted(finished(task.key for task in made.tasks).items()):
        results[recipe_hash].append(result)
    return Outcome(made, results, ran, failures)


Key = tuple[str, int]
"""Recipe hash and seed: what makes a run."""


@dataclass(frozen=True)
class Task:
    """One run.

    Args:
        cell: The first cell it fills; others may have the same recipe.
        tag: What the tracking store calls that cell.
    """

    cell: Cell
    seed: int
    tag: str

    @property
    def key(self) -> Key:
        """Recipe hash and seed."""
        return self.cell.hash, self.seed

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.cell.label} · seed {self.seed}"


def tasks(study: Study, cells: Sequence[Cell], seeds: Sequence[int]) -> list[Task]:
    """Return every run once, seed by seed: an unfinished study has whole tables of few seeds, not a few rows."""
    different: dict[str, Cell] = {}
    for cell in cells:
        different.setdefault(cell.hash, cell)
    return [Task(cell, seed, tag(study, cell)) for seed in seeds for cell in different.values()]


def finished(keys: Iterable[Key]) -> dict[Key, Result]:
    """Return the results that the store has, the one that finished last of several."""
    wanted = set(keys)
    found: dict[Key, Result] = {}
    for result in sorted(finished_results(), key=lambda r: r.finished):
        if (key := (result.recipe_hash, result.seed)) in wanted:
            found[key] = result
    return found


def recorded(task: Task) -> list[RecordedRun]:
    """Return the runs that the store has of a task, newest first; trials of a search are no results."""
    recipe_hash, seed = task.key
    found = list_runs(f"tags.`{tags.RECIPE_HASH}` = '{recipe_hash}' and tags.`{tags.SEED}` = '{seed}'")
    return [run for run in found if tags.TUNE not in run.tags]


def is_done(runs: Iterable[RecordedRun]) -> bool:
    """Tell whether one of them came to its end, be it that the store has not been told yet."""
    unsent = {pending.run_id for pending in waiting()}
    return any(run.result is not None or (run.run_id in unsent and is_finished(run.run_id)) for run in runs)


def failed_since(runs: Iterable[RecordedRun], since: datetime) -> RecordedRun | None:
    """Return a run that failed after a moment: another process has tried already."""
    return next((run for run in runs if run.status == "FAILED" and run.started >= since), None)


def to_resume(task: Task, runs: Iterable[RecordedRun]) -> RunFolder | None:
    """Return the unfinished run of a task that got on last, if no living process has it."""
    free = {run.run_id for run in runs if run.status not in ("RUNNING", "SCHEDULED", "FINISHED")}
    resolved = task.cell.load(task.seed).recipe.resolved()
    return next((folder for folder in unfinished(resolved) if folder.run_id in free), None)


@contextmanager
def claim(recipe_hash: str, seed: int) -> Iterator[bool]:
    """Claim a run while the block lasts; yield whether it is ours, or another living process has it.

    Reaches as far as the state directory does: processes of one machine.
    """
    folder = home() / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    # The file stays: a lock on a file that somebody deletes meanwhile is a lock on nothing.
    lock = FileLock(folder / f"{recipe_hash}-{seed}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


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
        device: As `cse_cli.core.devices.choose` takes it.
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
