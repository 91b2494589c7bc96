"""Plan of a study: its runs, one per experiment and seed, and the results of those that are finished."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cse_cli.core.formatting import differences
from cse_cli.core.identity import Difference
from cse_cli.core.results import Result
from cse_cli.data.identity import identify_known
from cse_cli.jobs.request import RunRequest, parse_tags
from cse_cli.jobs.tasks import Task, finished, planned
from cse_cli.recipe.cells import Cell, cell_tag, cells
from cse_cli.recipe.schema import PROSE
from cse_cli.recipe.study import Study, load_study
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import log_of
from cse_cli.training.build import Job
from registry.errors import CseError

Key = tuple[str, int]
"""Hash of a cell's settings, and seed."""


@dataclass(frozen=True, eq=False)
class StudyRun:
    """Run of a study.

    Args:
        cell: First cell that the run fills. Other cells may have the same recipe.
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
        """Name of the run in messages."""
        return f"{self.cell.label} · seed {self.seed}"

    def log(self) -> Path | None:
        """Return the newest log of the run, or None if it has not started."""
        newest = next(iter(self.task.same(all_runs())), None)
        return None if newest is None else log_of(newest.run_id)


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study.

    Args:
        name: Name or path in the command.
        runs: Runs in the order of seeds, so that an unfinished study has complete tables of few seeds.
        before: Results of finished runs.
        changed: Differences of runs that are finished only with other text, weights or code.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: tuple[StudyRun, ...]
    before: dict[Key, Result] = field(repr=False)
    changed: dict[Key, list[Difference]] = field(default_factory=dict, repr=False)

    @property
    def open(self) -> list[StudyRun]:
        """Runs that are not finished."""
        return [run for run in self.runs if run.key not in self.before]

    def results(self) -> dict[str, list[Result]]:
        """Return the results that are recorded now: hash of the settings → results in the order of seeds."""
        results: dict[str, list[Result]] = {cell.hash: [] for cell in self.cells}
        recorded = all_runs()
        for run in sorted(self.runs, key=lambda run: run.seed):
            if (found := run.task.result(recorded)) is not None:
                results[run.cell.hash].append(found)
        return results


@dataclass(frozen=True)
class StudyOutcome:
    """Outcome of a study.

    Args:
        results: Finished results by hash of the settings, in the order of seeds.
        ran: Number of runs that this command executed.
    """

    plan: StudyPlan
    results: dict[str, list[Result]] = field(repr=False)
    ran: int
    failures: dict[StudyRun, CseError]


def plan_study(name: str, request: RunRequest) -> StudyPlan:
    """Read a study and its recipes, and find the finished runs.

    Overrides of the command apply to every cell, and its seeds replace those of the study.
    """
    study = load_study(name)
    made = cells(study, request.overrides, request.unset)
    seeds = tuple(request.seed_list()) or study.seed_list
    different: dict[str, Cell] = {}
    for cell in made:
        _check_names(different.setdefault(cell.hash, cell), cell)
    parse_tags(request.tags)
    recorded = all_runs()
    runs = _runs(study, list(different.values()), seeds, request)
    done = finished([run.task for run in runs], recorded)
    before = {run.key: done[run.task] for run in runs if run.task in done}
    differing = {run.key: run.task.changes(recorded) for run in runs if run.task not in done}
    changed = {key: differences for key, differences in differing.items() if differences}
    return StudyPlan(name, study, tuple(made), seeds, runs, before, changed)


def _check_names(one: Cell, other: Cell) -> None:
    """Refuse two cells that differ only in model directories with the same name, because they have the same hash."""
    if one is other:
        return
    ignored = dict.fromkeys([*PROSE, "train", "data"])
    first, second = ({**cell.load(0).recipe.resolved(), **ignored} for cell in (one, other))
    if changed := list(differences(first, second)):
        raise CseError(
            f"cells '{one.label}' and '{other.label}' differ only in directories with the same name: {changed[0]}",
            "rename one of the directories",
            code="jobs.ambiguous_cells",
        )


def _runs(study: Study, different: Sequence[Cell], seeds: Sequence[int], request: RunRequest) -> tuple[StudyRun, ...]:
    """Return the runs in the order of seeds, with the plan of the seeds of each cell."""
    known = {cell.hash: identify_known(cell.load(seeds[0]).recipe) for cell in different}
    pairs = [(cell, seed) for seed in seeds for cell in different]
    tasks = [Task(_job(study, *pair, request), known[pair[0].hash], request.accept_changed) for pair in pairs]
    return tuple(StudyRun(*pair, task) for pair, task in zip(pairs, planned(tasks), strict=True))


def _job(study: Study, cell: Cell, seed: int, request: RunRequest) -> Job:
    group = os.environ.get("MLFLOW_EXPERIMENT_NAME") or study.name
    job = Job(cell.load(seed), seed, request.device, study=cell_tag(study, cell), group=group)
    return request.labeled(job, several=True)
