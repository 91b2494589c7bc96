"""The runs of a study: cells × seeds, each different experiment once, and what the store has of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cse_cli.results import Result
from cse_cli.run_folder import RunFolder, is_finished, unfinished
from cse_cli.study.cells import Cell, tag
from cse_cli.study.schema import Study
from cse_cli.tracking import tags
from cse_cli.tracking.buffer import waiting
from cse_cli.tracking.reader import RecordedRun, finished_results, list_runs

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
