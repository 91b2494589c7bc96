"""A study as it is to be run: its cells, its seeds, and what is finished before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cse_cli.results import Result
from cse_cli.study.cells import Cell, cells
from cse_cli.study.load import load_study
from cse_cli.study.schema import Study
from cse_cli.study.tasks import Key, Task, finished, tasks


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
