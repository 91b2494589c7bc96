"""A study: its runs (cells × seeds, each different experiment once), what is finished, and doing what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cse_cli.core.console import Observer, SilentObserver
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, is_finished, log_of, unfinished_runs
from cse_cli.jobs.executor import Executor, as_ended
from cse_cli.jobs.request import RunRequest, parse_tags
from cse_cli.recipe.cells import Cell, cell_tag, cells
from cse_cli.recipe.study import Study, load_study
from cse_cli.tracking import location, tags
from cse_cli.tracking.reader import RecordedRun, finished_results, list_runs
from cse_cli.tracking.unsent import waiting
from cse_cli.training.build import Job
from registry.errors import CseError, TrackingError

Key = tuple[str, int]
"""Recipe hash and seed: what makes a run."""


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
        request: What was asked for, with the names and tags of runs.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: tuple[StudyRun, ...]
    before: dict[Key, Result] = field(repr=False)
    request: RunRequest = field(default_factory=RunRequest, repr=False)

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
        log: What the run wrote, where it had begun.
    """

    run: StudyRun
    message: str
    exit_code: int
    log: Path | None


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
    parse_tags(request.tags)
    before = finished_runs(run.key for run in runs)
    return StudyPlan(name, study, tuple(made), seeds, runs, before, request)


def finished_runs(keys: Iterable[Key]) -> dict[Key, Result]:
    """Return the results that the store has, the one that finished last of several."""
    wanted = set(keys)
    found: dict[Key, Result] = {}
    for result in sorted(finished_results(), key=lambda r: r.finished):
        if (key := (result.recipe_hash, result.seed)) in wanted:
            found[key] = result
    return found


class StudyObserver(SilentObserver):
    """Is told of a study's progress."""

    def observer_of(self, run: StudyRun, *, alone: bool) -> Observer:  # noqa: ARG002 - a screen uses them
        """Return who is told how a run goes; `alone`: no other one runs meanwhile."""
        return self

    def begins(self, run: StudyRun, number: int, total: int) -> None:
        """A run starts or is resumed; `total` is how many were to be done at first."""

    def ended(self, run: StudyRun, result: Result) -> None:
        """A run came to its end."""

    def failed(self, what: str, error: Exception) -> None:
        """A run could not be done."""


def run_study(plan: StudyPlan, device: str, executor: Executor, observer: StudyObserver) -> StudyOutcome:
    """Do what is missing of a study; a run that fails does not stop the others.

    Several runs at once begin with the longest, so that the last ones end at about the same time.

    Args:
        plan: What it asks for.
        device: As `cse_cli.core.devices.choose` takes it, where the executor leaves the choice.
        executor: Runs the jobs.
        observer: Of everything.

    Raises:
        TrackingError: Nothing can be recorded any more.
    """
    todo = plan.open if executor.one_by_one else sorted(plan.open, key=_length, reverse=True)
    failures: list[StudyFailure] = []
    ran = 0
    for run, end in as_ended(executor, _jobs(plan, todo, device, observer, alone=executor.one_by_one)):
        if isinstance(end, TrackingError):
            raise end
        if isinstance(end, CseError):
            newest = next(iter(_recorded(run)), None)
            log = None if newest is None else log_of(newest.run_id)
            failures.append(StudyFailure(run, str(end), end.exit_code, log))
            observer.failed(run.label, end)
        else:
            ran += 1
            observer.ended(run, end)
    return StudyOutcome(plan, plan.results(), ran, failures)


def _jobs(
    plan: StudyPlan, todo: Sequence[StudyRun], device: str, observer: StudyObserver, *, alone: bool
) -> Iterator[tuple[StudyRun, Job, Observer]]:
    """Yield what is to be run: a run that another command has done, or is at, since the study was planned is not."""
    for number, run in enumerate(todo, 1):
        recorded = _recorded(run)
        if busy := next((one for one in recorded if one.status in ("RUNNING", "SCHEDULED")), None):
            observer.warned(f"{run.label} is left out: another command is at it, as run {busy.run_id[:8]}")
        elif not _is_done(recorded):
            observer.begins(run, number, len(todo))
            loaded, resume = run.cell.load(run.seed), _resumable(run, recorded)
            study = location.experiment(plan.study.name)
            job = Job(loaded, run.seed, device, resume, may_restart=True, study=run.tag, experiment=study)
            yield run, plan.request.labelled(job, several=True), observer.observer_of(run, alone=alone)


def _length(run: StudyRun) -> float:
    """Return about how much a run has to compute: tokens; without a number of steps, more than any other."""
    recipe = run.cell.load(run.seed).recipe
    steps = math.inf if recipe.train.steps is None else recipe.train.steps
    return steps * recipe.train.batch_size * recipe.data.max_length


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
    """Return the unfinished run with the latest checkpoint."""
    free = {one.run_id for one in recorded if one.status != "FINISHED"}
    resolved = run.cell.load(run.seed).recipe.resolved()
    return next((folder for folder in unfinished_runs(resolved) if folder.run_id in free), None)
