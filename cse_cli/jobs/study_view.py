"""A study on the screen: what is to be run, how it goes, and its table; and as JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.markup import escape
from rich.text import Text

from cse_cli.core.console import Console, Observer, RunInfo, RunLines, Screen, stdout_console, write_json
from cse_cli.core.formatting import counted
from cse_cli.core.results import Result
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_rich_parts, plain_table
from cse_cli.jobs.study import Key, StudyFailure, StudyObserver, StudyOutcome, StudyPlan, StudyRun
from cse_cli.jobs.view import scores_in_words
from cse_cli.recipe.cells import headings, values
from cse_cli.recipe.files import bare_name
from cse_cli.runs.index import RecordedRun


class StudyScreen(Screen, StudyObserver):
    """Shows a study and the run that is at work.

    Args:
        name: Of the study, as the command line has it.
        quiet: Show errors alone.
    """

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.name = name
        self._stopped = ""

    def planned(self, plan: StudyPlan) -> None:
        """Print what is to be run, and what is finished already."""
        self.write(f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}")
        self.write(f"  {count_runs(plan)}")
        for line in changed_lines(plan):
            self.write(f"  {escape(line)}")

    def observer_of(self, run: StudyRun, *, alone: bool) -> Observer:
        """Return this screen, or plain lines of one run among several."""
        return self if alone else StudyRunLines(run.label, self.console)

    def begins(self, run: StudyRun, number: int, total: int) -> None:
        """Print which run of how many starts."""
        self.write(f"[bold]run {number} of {total}[/bold] · {escape(run.label)}")

    def waits(self, run: StudyRun, recorded: RecordedRun) -> None:
        """Print which run of another process is awaited."""
        self.write(f"waiting for {escape(run.label)}: run {recorded.about.short} is {escape(recorded.host)}")

    def ended(self, run: StudyRun, result: Result) -> None:
        """Print that it is done, and how long it took."""
        scores = " · ".join(scores_in_words(result))
        self.ran(f"done · {run.label} · {scores} · {result.seconds:,.0f} s of training")

    def stopped(self, run_id: str | None) -> None:
        """Keep which run it was: `left` says how a study goes on."""
        self._close()
        self._stopped = "" if run_id is None else f" in run {run_id[:8]}"

    def left(self) -> None:
        """Print how to go on with the study."""
        self._close()
        self.write(f"stopped{self._stopped}; the same command goes on from there: cse run {escape(self.name)} …")


class StudyRunLines(RunLines):
    """Plain lines of one run among several; the study says that it begins and ends."""

    def started(self, run: RunInfo) -> None:
        """Print nothing, unless it goes on."""
        if run.done:
            self.write(f"going on after step {run.done}")

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Print nothing."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print nothing."""


def count_runs(plan: StudyPlan) -> str:
    """Return how many cells, seeds and runs there are, and how many are finished."""
    different = len({cell.hash for cell in plan.cells})
    same = "" if different == len(plan.cells) else f" ({different} different)"
    return (
        f"{counted(len(plan.cells), 'cell')}{same} × {counted(len(plan.seeds), 'seed')} = "
        f"{counted(len(plan.runs), 'run')}: {len(plan.before)} finished, {len(plan.open)} to run"
    )


def changed_lines(plan: StudyPlan) -> list[str]:
    """Return a line for each way in which runs of the study were made by another experiment: other text or code."""
    ways = Counter(", ".join(map(str, differences)) for differences in plan.changed.values())
    return [
        f"{number} of {counted(len(plan.runs), 'run')} finished with another experiment ({way}) and will be run again"
        + ("" if "text" in way or "weights" in way else ". To keep them: --accept-changed")
        for way, number in ways.items()
    ]


def print_study_plans(plans: Sequence[StudyPlan], places: Sequence[str]) -> None:
    """Print every cell, its settings, which of its seeds are to be run, and where."""
    for plan, place in zip(plans, places, strict=True):
        rows = []
        for cell in plan.cells:
            settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
            done = [str(seed) for seed in plan.seeds if (cell.hash, seed) in plan.before]
            left = [str(seed) for seed in plan.seeds if (cell.hash, seed) not in plan.before]
            columns = ", ".join(cell.columns) or "all"
            rows.append((cell.row, columns, cell.recipe, " ".join(settings), ", ".join(done), ", ".join(left)))
        with stdout_console() as out:
            _print_title(out, plan)
            out.print(Text(count_runs(plan)), soft_wrap=True)
            for line in changed_lines(plan):
                out.print(Text(line), soft_wrap=True)
            out.print(Text(place), soft_wrap=True)
            names = ("row", "columns", "recipe", "settings", "finished", "to run")
            out.print(as_rich(plain_table(names, rows), ruled=True))


def print_outcomes(outcomes: Sequence[StudyOutcome], *, quiet: bool = False) -> None:
    """Print tables on stdout, what failed and where to look on stderr; what to do next not where that is `quiet`."""
    for outcome in outcomes:
        plan = outcome.plan
        with stdout_console() as out:
            _print_title(out, plan)
            out.print()
            for part in as_rich_parts(_scores_table(outcome), out.width, ruled=True):
                out.print(part)
        sys.stdout.flush()
        told = Console(stderr=True, highlight=False, soft_wrap=True)
        done = sum(map(len, outcome.results.values()))
        if missing := len(plan.runs) - done:
            failed = len(outcome.failures)
            told.print(
                f"{counted(len(plan.runs), 'run')}: {done} finished, {failed} failed, {missing - failed} missing; "
                "the same command tries them again"
            )
        for failure in outcome.failures:
            told.print(f"[red]failed:[/red] {escape(failure.run.label)}: {escape(failure.message)}")
            if failure.log is not None:
                told.print(f"  its log: {escape(str(failure.log))}")
        if plan.study.paper is not None and not quiet:
            # The leaderboard finds studies by their bare names.
            found = bare_name(plan.study.path) is not None
            command = f"leaderboard --table {plan.study.paper}" if found else f"report {plan.name}"
            told.print(f"→ beside the paper: cse {escape(command)}")


def _print_title(out: Console, plan: StudyPlan) -> None:
    out.print(Text.assemble((plan.study.name, "bold"), f" · {plan.study.title}"), soft_wrap=True)


def _scores_table(outcome: StudyOutcome) -> Table:
    """Return rows and columns as the paper prints them: the mean over seeds, the spread below it."""
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    columns = headings(outcome.plan.study, found)
    rows = []
    for row, cells in found.items():
        scores = [cells.get(column, []) for column in columns]
        counts = sorted({len(numbers) for numbers in cells.values()} or {0})
        n = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        means = [f"{fmean(numbers):.2f}" if numbers else "" for numbers in scores]
        rows.append(Row(row, tuple(map(Cell, (n, *means)))))
        if any(len(numbers) > 1 for numbers in scores):
            spread = [f"{stdev(numbers):.2f}" if len(numbers) > 1 else "" for numbers in scores]
            rows.append(Row("± over seeds", tuple(map(Cell, ("", *spread))), emphasis="spread", below=True))
    return Table("", ("n", *columns), tuple(rows))


def write_study_plans(plans: Sequence[StudyPlan], places: Sequence[str]) -> None:
    """Write one JSON document with every cell, and where its runs go."""
    tables = (_plan_tables(plan, plan.before) for plan in plans)
    write_json({"studies": [{**table, "place": place} for table, place in zip(tables, places, strict=True)]})


def write_outcomes(outcomes: Sequence[StudyOutcome]) -> None:
    """Write one JSON document with every cell, its scores, and all results."""
    write_json({"studies": [_outcome_tables(one) for one in outcomes]})


def _outcome_tables(outcome: StudyOutcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    tables = _plan_tables(outcome.plan, {(result.recipe_hash, result.seed) for result in results})
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    for cell, about in zip(outcome.plan.cells, tables["cells"], strict=True):
        wanted = {k: v for k, v in found[cell.row].items() if not cell.columns or k in cell.columns}
        about["scores"] = {
            heading: {
                "mean": fmean(numbers),
                "std": stdev(numbers) if len(numbers) > 1 else None,
                "n": len(numbers),
            }
            for heading, numbers in wanted.items()
            if numbers
        }
    return {
        **tables,
        "ran": outcome.ran,
        "failures": [_failure_table(failure) for failure in outcome.failures],
        "results": [result.model_dump(mode="json") for result in results],
    }


def _plan_tables(plan: StudyPlan, done: Container[Key]) -> dict[str, Any]:
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
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "paper": plan.study.paper,
        "seeds": list(plan.seeds),
        "runs": len(plan.runs),
        "finished_before": len(plan.before),
        "changed": [
            {"hash": hash_, "seed": seed, "differences": list(map(str, differences))}
            for (hash_, seed), differences in plan.changed.items()
        ],
        "cells": cells,
    }


def _failure_table(failure: StudyFailure) -> dict[str, Any]:
    cell = failure.run.cell
    return {
        "row": cell.row,
        "columns": list(cell.columns),
        "hash": cell.hash,
        "seed": failure.run.seed,
        "message": failure.message,
        "exit_code": failure.exit_code,
        "log": None if failure.log is None else str(failure.log),
    }
