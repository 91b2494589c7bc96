"""A study: its runs (cells × seeds, each different experiment once), what is finished, and one process's share of it.

Processes of one machine share a study through claims: a lock on a file per run, which ends with its process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import sleep

from filelock import FileLock, Timeout

from cse_cli.core.console import Observer, SilentObserver
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, find, is_finished, unfinished_runs
from cse_cli.recipe.cells import Cell, cell_tag, cells
from cse_cli.recipe.study import Study, load_study
from cse_cli.runs.request import RunRequest
from cse_cli.tracking import tags
from cse_cli.tracking.reader import RecordedRun, finished_results, list_runs
from cse_cli.tracking.unsent import waiting
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import CseError, RunFailedError, TrackingError

Key = tuple[str, int]
"""Recipe hash and seed: what makes a run."""
POLL_SECONDS = 1.0
"""Between two looks at runs that other processes have claimed."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

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
        """Its name in messages."""
        return f"{self.cell.label} · seed {self.seed}"


@dataclass(frozen=True)
class StudyPlan:
    """What a study asks for.

    Args:
        name: As the command line has it.
        runs: Each different one once, seed by seed: an unfinished study has whole tables of few seeds, not a few rows.
        before: Those that are finished, with their results.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: tuple[StudyRun, ...]
    before: dict[Key, Result] = field(repr=False)

    @property
    def open(self) -> list[StudyRun]:
        """What is to be run."""
        return [run for run in self.runs if run.key not in self.before]

    def results(self) -> dict[str, list[Result]]:
        """Read what the store has now: recipe hash → results in order of seed."""
        results: dict[str, list[Result]] = {cell.hash: [] for cell in self.cells}
        for (recipe_hash, _), result in sorted(finished_runs(run.key for run in self.runs).items()):
            results[recipe_hash].append(result)
        return results


@dataclass(frozen=True)
class StudyFailure:
    """A run that could not be done.

    Args:
        message: Why, and what to do.
    """

    run: StudyRun
    message: str
    exit_code: int


@dataclass(frozen=True)
class StudyOutcome:
    """What is there after a study has run.

    Args:
        results: Everything finished, by recipe hash and in order of seed.
        ran: How many of the runs this command did.
        failures: What could not be done.
    """

    plan: StudyPlan
    results: dict[str, list[Result]] = field(repr=False)
    ran: int
    failures: list[StudyFailure]


def plan_study(name: str, request: RunRequest) -> StudyPlan:
    """Read a study, load the recipe of every cell, and look up what is finished.

    Args:
        name: Name or path of the study.
        request: Its overrides are laid over every cell; its seeds, where given, replace the study's own.

    Raises:
        CseError: The study or one of its recipes is not valid.
    """
    study = load_study(name)
    made = cells(study, request.overrides, request.unset)
    seeds = tuple(request.seed_list()) or study.seed_list
    different: dict[str, Cell] = {}
    for cell in made:
        different.setdefault(cell.hash, cell)
    runs = tuple(StudyRun(cell, seed, cell_tag(study, cell)) for seed in seeds for cell in different.values())
    return StudyPlan(name, study, tuple(made), seeds, runs, finished_runs(run.key for run in runs))


def finished_runs(keys: Iterable[Key]) -> dict[Key, Result]:
    """Return the results that the store has, the one that finished last of several."""
    wanted = set(keys)
    found: dict[Key, Result] = {}
    for result in sorted(finished_results(), key=lambda r: r.finished):
        if (key := (result.recipe_hash, result.seed)) in wanted:
            found[key] = result
    return found


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


def execute_or_restart(job: Job, observer: Observer, *, discard: bool = False) -> Result:
    """Run a job to its end; start anew where the run that it resumes cannot go on.

    Args:
        job: What to run.
        observer: Of the run; is warned of a restart.
        discard: Delete the checkpoints of a run that cannot go on.

    Raises:
        CseError: It could not start, or failed on the way.
        Pruned: The observer ended it.
    """
    try:
        return execute(job, observer)
    except CseError as error:
        if job.resume is None or error.exit_code != CseError.exit_code:
            raise
        observer.warned(f"run {job.resume.run_id[:8]} cannot go on, so it starts anew: {error.message}")
    if discard:
        discard_checkpoints(job.resume.run_id)
    return execute(replace(job, resume=None), observer)


def discard_checkpoints(run_id: str) -> None:
    """Delete the checkpoints of a run that nobody will resume."""
    with suppress(CseError):
        find(run_id).close()


class StudyObserver(SilentObserver):
    """Is told of a study's progress, and of that of its runs."""

    def begins(self, run: StudyRun, number: int, total: int) -> None:
        """A run starts or is resumed; `total` is how many were to be done at first."""

    def ended(self, run: StudyRun, result: Result) -> None:
        """A run came to its end."""

    def elsewhere(self, run: StudyRun) -> None:
        """Another process has done a run meanwhile."""

    def waits(self, count: int) -> None:
        """Only runs that other processes have claimed are left."""

    def failed(self, what: str, error: Exception) -> None:
        """A run could not be done."""


class StudyWorker:
    """One process's share of a study: every run that is neither finished nor claimed by another process.

    Args:
        runs: All that is to be done, by whichever process.
        device: As `cse_cli.core.devices.choose` takes it.
        observer: Of everything.
    """

    def __init__(self, runs: Sequence[StudyRun], device: str, observer: StudyObserver) -> None:
        self.device = device
        self.observer = observer
        self.failures: list[StudyFailure] = []
        self.ran = 0
        self._all = list(runs)
        self._open = list(runs)
        self._since = datetime.now(UTC).replace(microsecond=0)

    def work(self) -> None:
        """Do what is free; wait for what others have claimed, and take over what they leave undone.

        Raises:
            TrackingError: Nothing can be recorded any more.
        """
        while self._open:
            if not any(self._try(run) for run in list(self._open)):
                self.observer.waits(len(self._open))
                sleep(POLL_SECONDS)

    def _try(self, run: StudyRun) -> bool:
        """Do a run unless another process has it; return whether it is settled."""
        with claim(*run.key) as ours:
            if not ours:
                return False
            self._open.remove(run)
            try:
                self._do(run)
            except TrackingError:
                raise
            except CseError as error:
                self.failures.append(StudyFailure(run, str(error), error.exit_code))
                self.observer.failed(run.label, error)
        return True

    def _do(self, run: StudyRun) -> None:
        recorded = _recorded(run)
        if _is_done(recorded):
            self.observer.elsewhere(run)
            return
        tried = next((one for one in recorded if one.status == "FAILED" and one.started >= self._since), None)
        if tried is not None:
            raise RunFailedError(
                f"run {tried.run_id[:8]} of another process failed", f"`cse runs show {tried.run_id[:8]}` shows it"
            )
        self.observer.begins(run, self._all.index(run) + 1, len(self._all))
        job = Job(run.cell.load(run.seed), run.seed, self.device, _resumable(run, recorded), run.tag)
        self.observer.ended(run, execute_or_restart(job, self.observer))
        self.ran += 1


def _recorded(run: StudyRun) -> list[RecordedRun]:
    """Return what the store has of a run, newest first; trials of a search are not results."""
    recipe_hash, seed = run.key
    found = list_runs(f"tags.`{tags.RECIPE_HASH}` = '{recipe_hash}' and tags.`{tags.SEED}` = '{seed}'")
    return [one for one in found if tags.TUNE not in one.tags]


def _is_done(recorded: Iterable[RecordedRun]) -> bool:
    """Return whether one of them came to its end, even if the store has not been told yet."""
    unsent = {pending.run_id for pending in waiting()}
    return any(run.result is not None or (run.run_id in unsent and is_finished(run.run_id)) for run in recorded)


def _resumable(run: StudyRun, recorded: Iterable[RecordedRun]) -> RunFolder | None:
    """Return the unfinished run with the latest checkpoint that no living process has."""
    free = {one.run_id for one in recorded if one.status not in ("RUNNING", "SCHEDULED", "FINISHED")}
    resolved = run.cell.load(run.seed).recipe.resolved()
    return next((folder for folder in unfinished_runs(resolved) if folder.run_id in free), None)
