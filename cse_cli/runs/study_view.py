"""A study on the screen: what is to be run, how it goes, and its table.

Studies as JSON documents on stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.core.console import Screen, Started
from cse_cli.core.results import Result
from cse_cli.recipe.cells import headings, values
from cse_cli.runs.study import Failure, Key, Outcome, Plan, Task


class StudyScreen(Screen):
    """Shows a study and the run that is at work.

    Args:
        asked: As the command line names the study.
    """

    def __init__(self, asked: str) -> None:
        super().__init__()
        self.asked = asked
        self._waited = 0
        self._left = ""

    def planned(self, plan: Plan) -> None:
        """Print what is to be run, and what is finished already."""
        self._line(f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}")
        self._line(f"  {counted(plan)}")

    def begins(self, task: Task, number: int, total: int) -> None:
        """Print which run of how many starts."""
        self._line(f"[bold]run {number} of {total}[/bold] · {escape(task.label)}")

    def ended(self, task: Task, result: Result) -> None:
        """Print that it is done, and how long it took."""
        self._close()
        self._line(f"done · {escape(task.label)} · {result.seconds:,.0f} s of training")

    def elsewhere(self, task: Task) -> None:
        """Print that another process has done a run."""
        self._line(f"[dim]done by another process · {escape(task.label)}[/dim]")

    def waits(self, count: int) -> None:
        """Print, once for each number, how many runs others are at."""
        if count != self._waited:
            self._waited = count
            self._line(f"[dim]waiting for {count} run{_s(count)} that other processes are at …[/dim]")

    def stopped(self, run_id: str | None) -> None:
        """Keep which run it was: `left` says how a study goes on."""
        self._close()
        self._left = "" if run_id is None else f" in run {run_id[:8]}"

    def left(self) -> None:
        """Print how to go on with the study."""
        self._close()
        self._line(f"stopped{self._left}; the same command goes on from there: cse run {escape(self.asked)} …")

    def _line(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


class WorkerLines(StudyScreen):
    """One line when a run starts, one when it ends, for a process that another one watches."""

    def elsewhere(self, task: Task) -> None:
        """Say nothing: the other one says it."""

    def waits(self, count: int) -> None:
        """Say nothing: the others are at work."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say nothing."""

    def started(self, run: Started) -> None:
        """Say nothing."""

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Say nothing."""

    def evaluated(self, step: int, scores: Any, best: bool) -> None:
        """Say nothing."""


def counted(plan: Plan) -> str:
    """Return how many cells, seeds and runs there are, and how many are finished."""
    cells, seeds, runs, done = len(plan.cells), len(plan.seeds), len(plan.tasks), len(plan.before)
    different = len({cell.hash for cell in plan.cells})
    same = "" if different == cells else f" ({different} different)"
    return (
        f"{cells} cell{_s(cells)}{same} × {seeds} seed{_s(seeds)} = {runs} run{_s(runs)}: "
        f"{done} finished, {runs - done} to run"
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def print_plans(plans: Sequence[Plan]) -> None:
    """Print every cell, its settings, and which of its seeds are to be run."""
    for plan in plans:
        _print_plan(plan)


def _print_plan(plan: Plan) -> None:
    console = _console()
    console.print(f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}", soft_wrap=True)
    console.print(counted(plan), soft_wrap=True)
    table = _study_table()
    for heading in ("row", "columns", "recipe", "settings", "finished", "to run"):
        table.add_column(heading, overflow="fold")
    for cell in plan.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        done = [str(seed) for seed in plan.seeds if (cell.hash, seed) in plan.before]
        left = [str(seed) for seed in plan.seeds if (cell.hash, seed) not in plan.before]
        columns = ", ".join(cell.columns) or "all"
        parts = (cell.row, columns, cell.recipe, " ".join(settings), ", ".join(done), ", ".join(left))
        table.add_row(*(escape(part) for part in parts))
    console.print(table)


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print tables on stdout, what failed and where to look on stderr."""
    for outcome in outcomes:
        _print_outcome(outcome)


def _print_outcome(outcome: Outcome) -> None:
    plan = outcome.plan
    console = _console()
    console.print(f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}\n", soft_wrap=True)
    console.print(_scores(outcome))
    told = Console(stderr=True, highlight=False, soft_wrap=True)
    missing = len(plan.tasks) - sum(len(results) for results in outcome.results.values())
    if missing:
        told.print(f"{missing} of {len(plan.tasks)} runs are missing; the same command tries them again")
    for failure in outcome.failures:
        told.print(f"[red]failed:[/red] {escape(failure.task.label)}: {escape(failure.message)}")
    if plan.study.paper is not None:
        told.print(f"→ beside the paper: cse leaderboard --table {escape(plan.study.paper)}")


def _scores(outcome: Outcome) -> Table:
    """Return rows and columns as the paper prints them: the mean over seeds, the spread below it."""
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    columns = headings(outcome.plan.study, found)
    table = _study_table()
    table.add_column("", overflow="fold")
    for heading in ("n", *columns):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for row, cells in found.items():
        scores = [cells.get(column, []) for column in columns]
        counts = sorted({len(numbers) for column, numbers in cells.items()} or {0})
        n = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        table.add_row(escape(row), n, *(f"{fmean(numbers):.2f}" if numbers else "" for numbers in scores))
        if any(len(numbers) > 1 for numbers in scores):
            spread = (f"{stdev(numbers):.2f}" if len(numbers) > 1 else "" for numbers in scores)
            table.add_row("  ± over seeds", "", *spread, style="dim")
    return table


def _study_table() -> Table:
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 400
    return console


SCHEMA_VERSION = 1


def write_study_plans(plans: Sequence[Plan]) -> None:
    """Write one JSON document with every cell."""
    _write({"studies": [_document(plan, plan.before) for plan in plans]})


def write_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Write one JSON document with every cell, its scores, and all results."""
    _write({"studies": [_outcome(one) for one in outcomes]})


def write_report(ran: int, failures: Sequence[Failure]) -> None:
    """Write what a worker tells the process that started it."""
    _write({"ran": ran, "failures": [_failure(failure) for failure in failures]})


def _outcome(outcome: Outcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    document = _document(outcome.plan, {(result.recipe_hash, result.seed) for result in results})
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    for cell, about in zip(outcome.plan.cells, document["cells"], strict=True):
        wanted = {k: v for k, v in found[cell.row].items() if not cell.columns or k in cell.columns}
        about["scores"] = {heading: _score(numbers) for heading, numbers in wanted.items() if numbers}
    failures = [_failure(failure) for failure in outcome.failures]
    plain = [result.model_dump(mode="json") for result in results]
    return {**document, "ran": outcome.ran, "failures": failures, "results": plain}


def _document(plan: Plan, done: Container[Key]) -> dict[str, Any]:
    cells = [
        {
            "row": cell.row,
            "columns": list(cell.columns),
            "recipe": cell.recipe,
            "set": list(cell.overrides),
            "unset": list(cell.unset),
            "hash": cell.hash,
            "finished": [seed for seed in plan.seeds if (cell.hash, seed) in done],
        }
        for cell in plan.cells
    ]
    study = plan.study
    return {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "seeds": list(plan.seeds),
        "runs": len(plan.tasks),
        "finished_before": len(plan.before),
        "cells": cells,
    }


def _score(numbers: Sequence[float]) -> dict[str, Any]:
    return {"mean": fmean(numbers), "std": stdev(numbers) if len(numbers) > 1 else None, "n": len(numbers)}


def _failure(failure: Failure) -> dict[str, Any]:
    cell = failure.task.cell
    return {
        "row": cell.row,
        "columns": list(cell.columns),
        "hash": cell.hash,
        "seed": failure.task.seed,
        "message": failure.message,
        "exit_code": failure.exit_code,
    }


def _write(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, ensure_ascii=False) + "\n")
