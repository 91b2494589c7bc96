"""Lists of runs (`cse runs ls`), the facts of one (`cse runs show`) and its events (`cse runs logs`)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted, parse_duration
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.index import STATES, RecordedRun, all_runs
from registry.errors import CseError, UnknownNameError, suggestion

RUNS_SCHEMA = 3
"""Version of the JSON of `cse runs ls` and `show`."""
_ORDERS = ("started", "avg", "gain", "dev", "seconds", "recipe", "name", "status")
_HIGHEST_FIRST = ("started", "avg", "gain", "dev", "seconds")
_NAME = "name, set"
"""Column of the table with the name, the trial, the tags and the changed settings of a run."""
_TABLE = {"recipe": "p", "seed": "r", "status": "l", "dev": "r", "test avg": "r", "started": "l", "seconds": "r"}
"""Columns of the table and their alignment."""
_COLUMNS = ("run", *_TABLE, "note", "gain", "changed", "name", "group", "experiment")
"""Columns of the tab-separated lines."""
_NARROW, _NARROWEST = 100, 66
"""In a terminal with fewer columns, names and changed settings are below the table, which omits times."""
_STYLES = {"FINISHED": "green", "FAILED": "red", "STOPPED": "yellow", "LOST": "yellow", "RUNNING": "cyan"}


def select_runs(
    *,
    recipe: str | None = None,
    status: str | None = None,
    tags: Sequence[str] = (),
    since: str | None = None,
    sort: str = "started",
) -> list[RecordedRun]:
    """Return the runs that match all options of `cse runs ls`, in order."""
    if status is not None and status.upper() not in STATES:
        message = f"--status: '{status}' is not a status.{suggestion(status.upper(), STATES)}"
        raise UnknownNameError(message, f"use {', '.join(STATES).lower()}", code="runs.unknown_status")
    if sort not in _ORDERS:
        message = f"--sort: '{sort}' is not a column.{suggestion(sort, _ORDERS)}"
        raise UnknownNameError(message, f"use {', '.join(_ORDERS)}", code="runs.unknown_order")
    earliest = None if since is None else parse_since(since)
    parts = [tag.partition("=") for tag in tags]
    found = [
        run
        for run in all_runs()
        if (recipe is None or fnmatchcase(run.about.recipe, recipe))
        and (earliest is None or run.about.created >= earliest)
        and all(key in run.about.tags for key, _, _ in parts)
        and all(run.about.tags[key] == value for key, equals, value in parts if equals)
        and (status is None or run.state == status.upper())
    ]
    return sorted(found, key=lambda run: _sort_key(run, sort))


def fold_trials(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], Counter[str]]:
    """Return the runs that are not trials, and search → number of its trials among `runs`."""
    trials = {(run.about.search, run.about.trial) for run in runs if run.about.is_trial}
    return [run for run in runs if not run.about.is_trial], Counter(search for search, _ in trials)


def parse_since(text: str) -> datetime:
    """Return the time of "2026-11-21", "2026-11-21 14:00", or "2d" and "3h" (ago)."""
    with suppress(ValueError):
        return datetime.fromisoformat(text).astimezone()
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration("--since", text))
    except (CseError, OverflowError):
        message = f"--since: '{text}' is not a date or duration"
        raise CseError(message, "use 2026-11-21, 3h or 2d", code="runs.invalid_time") from None


def _sort_key(run: RecordedRun, order: str) -> tuple[Any, ...]:
    """Return the sort key: high numbers or early letters first, then the newest. Runs without a value are last."""
    newest = -run.about.created.timestamp()
    if order == "started":  # without parsing the results of thousands of runs
        return (newest,)
    value = to_document(run)["test" if order == "avg" else order]
    if value is None:
        return True, 0, newest
    return False, -value if order in _HIGHEST_FIRST else value, newest


def to_document(run: RecordedRun) -> dict[str, Any]:
    """Return the fields of a run in JSON documents."""
    about, result = run.about, run.result
    return {
        "run_id": run.run_id,
        "recipe": about.recipe or run.name,
        "seed": "" if about.seed is None else str(about.seed),
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
    return ", ".join([*_labels(run), *_remarks(run)])


def _labels(run: RecordedRun) -> Iterator[str]:
    """Yield the trial or the name of a run, and its tags."""
    about = run.about
    if about.search:
        yield f"search {about.search}" if about.trial is None else f"trial {about.trial}"
    elif run.name not in (about.recipe, f"{about.recipe} seed {about.seed}"):
        yield f"'{run.name}'"
    yield from (f"{key}={value}" if value else key for key, value in sorted(about.tags.items()))
    if about.confirms:
        yield f"confirms {about.confirms}"


def _remarks(run: RecordedRun) -> Iterator[str]:
    """Yield why a run has no scores or no usual ones, and the command that continues it."""
    about = run.about
    if about.test_selected:
        yield "selected on test data"
    if about.limited:
        yield "scored on a part of the data"
    if about.pulled:
        yield f"from {about.pulled}"
    if run.end == "failed" and run.reason:
        yield run.reason
    if run.state in ("STOPPED", "LOST"):
        yield _interruption(run)
    if run.unreadable:
        yield run.unreadable
    if run.damaged:
        yield f"{counted(run.damaged, 'damaged line')} in events.jsonl"


def _interruption(run: RecordedRun) -> str:
    """Return the step at which a run was interrupted, and the command that resumes it."""
    about, (step, steps), where = run.about, run.progress, run.state.lower()
    if not about.summary:
        where += f" at step {step} of {steps}" if step else " before the first step"
    if about.is_trial or about.pulled:
        return where
    command = f"cse tune --resume {about.search}" if about.search else f"cse run --resume {about.short}"
    return f"{where} (resume: {command})"


def write_runs_json(runs: Sequence[RecordedRun]) -> None:
    """Write one JSON document with the fields of each run."""
    write_json({"runs": [to_document(run) for run in runs]}, RUNS_SCHEMA)


def print_runs(runs: Sequence[RecordedRun], folded: Mapping[str, int]) -> None:
    """Print one line for each run: a table in a terminal, tab-separated values in a pipe.

    `folded` maps each search to the number of its trials that are not listed.
    """
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(plain_table(_COLUMNS, [list(_cells(run).values()) for run in runs])))
        return
    console = Console(highlight=False)
    console.print(as_rich(_table(runs, console.width, folded), gap=1))
    names = _names(runs, folded) if console.width < _NARROW else {}
    for run in runs:
        for text in (*filter(None, [names.get(run.run_id)]), *_remarks(run)):
            console.print(f"{run.about.short}: {escape(text)}")


def _table(runs: Sequence[RecordedRun], width: int, folded: Mapping[str, int]) -> Table:
    columns, names = _TABLE, _names(runs, folded)
    if width < _NARROW:
        omitted = ("seconds", "started") if width < _NARROWEST else ("seconds",)
        columns = {name: kind for name, kind in _TABLE.items() if name not in omitted}
    elif any(names.values()):
        columns = {"recipe": "p", _NAME: "p"} | _TABLE
    rows = []
    for run in runs:
        cells = _cells(run) | {_NAME: names[run.run_id], "started": f"{run.about.created.astimezone():%m-%d %H:%M}"}
        texts = (cells[heading] for heading in columns)
        rows.append(Row(run.about.short, tuple(Cell(text, style=_STYLES.get(text, "")) for text in texts)))
    return Table("", tuple(columns), tuple(rows), label="run", align=f"l{''.join(columns.values())}")


def _names(runs: Sequence[RecordedRun], folded: Mapping[str, int]) -> dict[str, str]:
    """Return run ID → labels and changed settings. The recipe column has the name of a search."""
    names = {}
    for run in runs:
        search = run.about.summary == "tuning"
        labels = [f"search: {counted(folded.get(run.about.search, 0), 'trial')}"] if search else _labels(run)
        names[run.run_id] = ", ".join([*labels, *map(_short, run.about.changes)])
    return names


def _short(change: str) -> str:
    """Return "steps=10" for "train.steps=10", and four digits of a number. The pipe and JSON have all."""
    key, equals, value = change.partition("=")
    with suppress(ValueError):
        value = f"{float(value):.4g}" if "." in value or "e-" in value else value
    return f"{key.rpartition('.')[2]}={value}" if equals else change


def _cells(run: RecordedRun) -> dict[str, str]:
    """Return column → text on one line, in the order of `_COLUMNS`."""
    document = to_document(run)
    cells = document | {
        "run": run.run_id,
        "test avg": document["test"],
        "started": run.about.created.isoformat(timespec="seconds"),
        "changed": "; ".join(run.about.changes),
    }
    for name, digits in (("dev", 2), ("test avg", 2), ("gain", 2), ("seconds", 1)):
        cells[name] = "" if cells[name] is None else f"{cells[name]:.{digits}f}"
    return {heading: " ".join(cells[heading].split()) for heading in _COLUMNS}
