"""Lists of recorded runs: a table, tab-separated lines and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.index import RecordedRun

RUNS_SCHEMA = 3
"""Version of the JSON of `cse runs ls` and `show`."""
_COLUMNS = ("run", "recipe", "seed", "status", "dev", "test avg", "started", "seconds", "note")
_MORE_COLUMNS = ("gain", "changed", "name", "group", "experiment")
_NARROW = 100
"""In a terminal with fewer columns, the table shows changed settings instead of the training time."""
_STYLES = {"FINISHED": "green", "FAILED": "red", "STOPPED": "yellow", "LOST": "yellow", "RUNNING": "cyan"}


def print_runs(runs: Sequence[RecordedRun]) -> None:
    """Print one line for each run: a table in a terminal, tab-separated values in a pipe."""
    if not sys.stdout.isatty():
        rows = [[*_cells(run, full=True), *_more_cells(run)] for run in runs]
        sys.stdout.write(as_tsv(plain_table((*_COLUMNS, *_MORE_COLUMNS), rows)))
        return
    console = Console(highlight=False)
    console.print(as_rich(_table(runs, console.width), gap=1))
    for run in runs:
        if text := note(run):
            console.print(f"{run.about.short}: {escape(text)}")


def _table(runs: Sequence[RecordedRun], width: int) -> Table:
    headings, align = list(_COLUMNS[1:-1]), list("prlrrlr")
    lines = [_cells(run, full=False)[:-1] for run in runs]
    if any(run.about.changes for run in runs):
        if width < _NARROW:
            headings, align, lines = headings[:-1], align[:-1], [line[:-1] for line in lines]
        headings.insert(1, "set")
        align.insert(1, "p")
        for line, run in zip(lines, runs, strict=True):
            line.insert(2, ", ".join(map(_short, run.about.changes)))
    rows = (Row(label, tuple(Cell(text, style=_STYLES.get(text, "")) for text in texts)) for label, *texts in lines)
    return Table("", tuple(headings), tuple(rows), label=_COLUMNS[0], align=f"l{''.join(align)}")


def _short(change: str) -> str:
    """Return "steps=10" for "train.steps=10". The pipe and JSON have the whole key."""
    key, equals, value = change.partition("=")
    return f"{key.rpartition('.')[2]}={value}" if equals else change


def write_runs_json(runs: Sequence[RecordedRun]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [to_document(run) for run in runs]}, RUNS_SCHEMA)


def to_document(run: RecordedRun) -> dict[str, Any]:
    """Return the fields of a run in JSON documents."""
    about, result = run.about, run.result
    return {
        "run_id": run.run_id,
        "recipe": about.recipe or run.name,
        "seed": _seed(run),
        "status": run.state,
        "dev": run.dev,
        "test": result.average() if result else None,
        "gain": result.gain if result else None,
        "started": about.created.isoformat(),
        "seconds": run.seconds,
        "note": note(run),
        "name": run.name,
        "group": about.group,
        "experiment": about.experiment,
        "changed": about.changes,
        "tags": about.tags,
    }


def note(run: RecordedRun) -> str:
    """Return the facts that you need to interpret the scores of a run."""
    return ", ".join(_notes(run))


def _notes(run: RecordedRun) -> Iterator[str]:
    about = run.about
    if about.search:
        yield f"search {about.search}" if about.trial is None else f"trial {about.trial}"
    elif run.name not in (about.recipe, f"{about.recipe} seed {about.seed}"):
        yield f"'{run.name}'"
    yield from (f"{key}={value}" if value else key for key, value in sorted(about.tags.items()))
    if about.confirms:
        yield f"confirms {about.confirms}"
    if about.test_selected:
        yield "selected on test data"
    if about.pulled:
        yield f"from {about.pulled}"
    yield from _problems(run)


def _problems(run: RecordedRun) -> Iterator[str]:
    if run.end == "failed" and run.reason:
        yield run.reason
    if run.unreadable:
        yield run.unreadable
    if run.damaged:
        yield f"{counted(run.damaged, 'damaged line')} in events.jsonl"


def _cells(run: RecordedRun, full: bool) -> list[str]:
    test = run.result.average() if run.result else None
    when = run.about.created.isoformat(timespec="seconds") if full else _clock(run)[5:]
    numbers = (_number(run.dev, 2), _number(test, 2), when, _number(run.seconds, 1))
    name = run.run_id if full else run.about.short
    line = (name, run.about.recipe or run.name, _seed(run), run.state, *numbers, note(run))
    return [" ".join(cell.split()) for cell in line]


def _more_cells(run: RecordedRun) -> list[str]:
    gain, about = run.result.gain if run.result else None, run.about
    cells = (_number(gain, 2), "; ".join(about.changes), run.name, about.group, about.experiment)
    return [" ".join(cell.split()) for cell in cells]


def _seed(run: RecordedRun) -> str:
    return "" if run.about.seed is None else str(run.about.seed)


def _clock(run: RecordedRun) -> str:
    return run.about.created.astimezone().strftime("%Y-%m-%d %H:%M")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
