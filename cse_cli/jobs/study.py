"""A study: its runs (cells × seeds, each different experiment once), what is finished, and doing what is missing."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cse_cli.core.console import Observer, SilentObserver
from cse_cli.core.formatting import differences
from cse_cli.core.identity import Difference
from cse_cli.core.results import Result
from cse_cli.data.identity import identify_known
from cse_cli.jobs.executor import Executor
from cse_cli.jobs.request import RunRequest, parse_tags
from cse_cli.jobs.tasks import Task, finished, planned, run_tasks
from cse_cli.recipe.cells import Cell, cell_tag, cells
from cse_cli.recipe.schema import PROSE
from cse_cli.recipe.study import Study, load_study
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import log_of
from cse_cli.training.build import Job
from registry.errors import CseError, DiskError, TrackingError

Key = tuple[str, int]
"""Hash of a cell's settings, and seed."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Args:
        cell: The first cell it fills; others may have the same recipe.
        task: The run to be done.
    """

    cell: Cell
    seed: int
    task: Task = field(repr=False)

    @property
    def key(self) -> Key:
        """Hash of the cell's settings, and seed."""
        return self.cell.hash, self.seed

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.cell.label} · seed {self.seed}"


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study.

    Args:
        name: As the command line has it.
        runs: Each different one once, seed by seed: an unfinished study has whole tables of few seeds, not a few rows.
        before: Finished runs with their results.
        changed: Runs that are finished with other text, weights or code only, with the differences.
        request: Options of the command, with the names and tags of runs.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: tuple[StudyRun, ...]
    before: dict[Key, Result] = field(repr=False)
    changed: dict[Key, list[Difference]] = field(default_factory=dict, repr=False)
    request: RunRequest = field(default_factory=RunRequest, repr=False)

    @property
    def open(self) -> list[StudyRun]:
        """What is to be run."""
        return [run for run in self.runs if run.key not in self.before]

    def results(self) -> dict[str, list[Result]]:
        """Read what is finished now: hash of the settings → results in order of seed."""
        results: dict[str, list[Result]] = {cell.hash: [] for cell in self.cells}
        recorded = all_runs()
        for run in sorted(self.runs, key=lambda run: run.seed):
            if (found := run.task.result(recorded)) is not None:
                results[run.cell.hash].append(found)
        return results


@dataclass(frozen=True)
class StudyFailure:
    """A run that could not be done.

    Args:
        message: Why, and what to do.
        log: Log of the run, or None if it had not started.
    """

    run: StudyRun
    message: str
    exit_code: int
    log: Path | None


@dataclass(frozen=True)
class StudyOutcome:
    """Outcome of a study.

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
        _check_names(different.setdefault(cell.hash, cell), cell)
    parse_tags(request.tags)
    recorded = all_runs()
    runs = _with_plans(_runs(study, list(different.values()), seeds, request))
    done = finished([run.task for run in runs], recorded)
    before = {run.key: done[run.task] for run in runs if run.task in done}
    differing = {run.key: run.task.changes(recorded) for run in runs if run.task not in done}
    changed = {key: differences for key, differences in differing.items() if differences}
    return StudyPlan(name, study, tuple(made), seeds, runs, before, changed, request)


def _check_names(one: Cell, other: Cell) -> None:
    """Refuse two cells that differ only in the directories of models of one name, which have one hash.

    Raises:
        CseError: If they do.
    """
    first, second = (
        {**cell.load(0).recipe.resolved(), **dict.fromkeys([*PROSE, "train", "data"])} for cell in (one, other)
    )
    if changed := [] if one is other else list(differences(first, second)):
        raise CseError(
            f"cells '{one.label}' and '{other.label}' differ only in directories of the same name: {changed[0]}",
            "rename one of the directories",
        )


def _runs(study: Study, different: Sequence[Cell], seeds: Sequence[int], request: RunRequest) -> tuple[StudyRun, ...]:
    known = {cell.hash: identify_known(cell.load(seeds[0]).recipe) for cell in different}
    return tuple(
        StudyRun(cell, seed, Task(_job(study, cell, seed, request), known[cell.hash], request.accept_changed))
        for seed in seeds
        for cell in different
    )


def _job(study: Study, cell: Cell, seed: int, request: RunRequest) -> Job:
    group = os.environ.get("MLFLOW_EXPERIMENT_NAME") or study.name
    job = Job(cell.load(seed), seed, request.device, study=cell_tag(study, cell), group=group)
    return request.labelled(job, several=True)


def _with_plans(runs: Sequence[StudyRun]) -> tuple[StudyRun, ...]:
    """Return runs with the plan of their cell's seeds."""
    by_cell: dict[str, list[StudyRun]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell.hash].append(run)
    tasks = {
        run.key: task
        for same in by_cell.values()
        for run, task in zip(same, planned([run.task for run in same]), strict=True)
    }
    return tuple(replace(run, task=tasks[run.key]) for run in runs)


class StudyObserver(SilentObserver):
    """Observer of a study's progress, which shows nothing."""

    def observer_of(self, run: StudyRun, *, alone: bool) -> Observer:  # noqa: ARG002 - a screen uses them
        """Return the observer of a run. `alone` is whether no other run is in parallel."""
        return self

    def begins(self, run: StudyRun, number: int, total: int) -> None:
        """A run starts or is resumed; `total` is how many were to be done at first."""

    def waits(self, run: StudyRun, recorded: RecordedRun) -> None:
        """Another process does a run, and nothing else is left to do."""

    def ended(self, run: StudyRun, result: Result) -> None:
        """A run finished."""

    def failed(self, what: str, error: Exception) -> None:
        """A run could not be done."""


def run_study(plan: StudyPlan, executor: Executor, observer: StudyObserver) -> StudyOutcome:
    """Do what is missing of a study. A run that fails does not stop the others.

    Several runs in parallel begin with the longest, so that the last ones end at about the same time.

    Args:
        plan: Plan of the study.
        executor: Executor of the runs.
        observer: Observer of everything.

    Raises:
        TrackingError: If nothing can be recorded.
        DiskError: If the disk is full.
    """
    todo = plan.open if executor.one_by_one else sorted(plan.open, key=_length, reverse=True)
    of_task = {run.task: run for run in todo}
    failures: list[StudyFailure] = []
    begun: list[Task] = []
    ran = 0

    def begin(task: Task) -> Observer:
        begun.append(task)
        observer.begins(of_task[task], len(begun), len(todo))
        return observer.observer_of(of_task[task], alone=executor.one_by_one)

    def wait_for(task: Task, recorded: RecordedRun) -> None:
        observer.waits(of_task[task], recorded)

    for task, end in run_tasks(list(of_task), executor, begin, wait_for):
        run = of_task[task]
        if isinstance(end, TrackingError | DiskError):
            raise end
        if isinstance(end, CseError):
            newest = next(iter(task.same(all_runs())), None)
            log = None if newest is None else log_of(newest.run_id)
            failures.append(StudyFailure(run, str(end), end.exit_code, log))
            observer.failed(run.label, end)
        else:
            ran += task in begun
            observer.ended(run, end)
    return StudyOutcome(plan, plan.results(), ran, failures)


def _length(run: StudyRun) -> float:
    """Return about how much a run has to compute: tokens; without a number of steps, more than any other."""
    recipe = run.task.job.loaded.recipe
    steps = math.inf if recipe.train.steps is None else recipe.train.steps
    return steps * recipe.train.batch_size * recipe.data.max_length
