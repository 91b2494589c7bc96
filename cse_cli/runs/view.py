"""Recorded runs on stdout: as a table, tab-separated lines, sections of text, and JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rich.filesize import decimal
from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.tracking.listing import Summary, summary
from cse_cli.tracking.reader import RecordedRun, RunDetails

RUNS_SCHEMA = 2
"""Of the JSON of `cse runs ls` and `show`: since 2 a run whose process is gone is "GONE", no longer "STALE"."""
_COLUMNS = ("run", "recipe", "seed", "status", "dev", "test avg", "started", "seconds", "note")
_MORE_COLUMNS = ("gain", "changed", "name", "experiment")
_NARROW = 100
"""Columns of a terminal below which the training time is left out where settings are shown."""
_STYLES = {"FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "GONE": "yellow", "RUNNING": "cyan"}
_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


def print_runs(runs: Sequence[Summary]) -> None:
    """Print a line a run: a table on a terminal, tab-separated values into a pipe."""
    if not sys.stdout.isatty():
        rows = [[*_cells(run, full=True), *_more_cells(run)] for run in runs]
        sys.stdout.write(as_tsv(plain_table((*_COLUMNS, *_MORE_COLUMNS), rows)))
        return
    console = Console(highlight=False)
    console.print(as_rich(_table(runs, console.width), gap=1))
    for run in runs:
        if run.note:
            console.print(f"{run.run_id[:8]}: {escape(run.note)}")


def _table(runs: Sequence[Summary], width: int) -> Table:
    """Return a row a run; with what was set only where anything was, and then without the time where it is narrow."""
    headings, align = list(_COLUMNS[1:-1]), list("prlrrlr")
    lines = [_cells(run, full=False)[:-1] for run in runs]
    if any(run.changed for run in runs):
        if width < _NARROW:
            headings, align, lines = headings[:-1], align[:-1], [line[:-1] for line in lines]
        headings.insert(1, "set")
        align.insert(1, "p")
        for line, run in zip(lines, runs, strict=True):
            line.insert(2, ", ".join(map(_short, run.changed)))
    rows = (Row(label, tuple(Cell(text, style=_STYLES.get(text, "")) for text in texts)) for label, *texts in lines)
    return Table("", tuple(headings), tuple(rows), label=_COLUMNS[0], align=f"l{''.join(align)}")


def _short(change: str) -> str:
    """Return "steps=10" of "train.steps=10": the pipe and JSON have the whole key."""
    key, equals, value = change.partition("=")
    return f"{key.rpartition('.')[2]}={value}" if equals else change


def write_runs_json(runs: Sequence[Summary]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [_plain(run) for run in runs]}, RUNS_SCHEMA)


def _plain(run: Summary) -> dict[str, Any]:
    return {**asdict(run), "started": run.started.isoformat()}


def print_removed(found: Sequence[RecordedRun], freed: int) -> None:
    """Print that runs were removed, and how many bytes are free by that."""
    sys.stdout.write(f"{counted(len(found), 'run')} removed, {decimal(freed)} freed\n")
    sys.stderr.write("MLflow can restore their records until `cse runs gc`\n")


def print_garbage(sizes: Mapping[str, int], size: int) -> None:
    """Print what can be deleted for good.

    Args:
        sizes: What → bytes that are free where it alone goes.
        size: Bytes that are free where all of it goes: files of several names go with their last one.
    """
    for what, alone in sizes.items():
        sys.stdout.write(f"{what}: {decimal(alone)}\n")
    sys.stdout.write(f"{decimal(size)} would be freed\n" if sizes else "nothing to delete\n")


def print_freed(size: int) -> None:
    """Print how many bytes are free now."""
    sys.stdout.write(f"{decimal(size)} freed\n")


def print_details(details: RunDetails) -> None:
    """Print everything about a run, most wanted first."""
    console = Console(highlight=False, soft_wrap=True)
    about = summary(details.run)
    console.print(f"[bold]{escape(details.run.name)}[/bold]  {details.run.run_id}  {about.status}")
    console.print(
        f"started {_clock(about)}, {_number(about.seconds, 1) or '?'} s{escape(about.note and f'; {about.note}')}"
    )
    if result := details.run.result:
        for title, scores in (("scores", result.scores), ("before training", result.untrained)):
            rows = [
                (name, "  ".join(f"{key} {values[key]:.2f}" for key in _leading(values)))
                for name, values in scores.items()
            ]
            _section(console, title, rows)
    curves = [(key, _curve_line([value for _, value in details.curves[key]])) for key in _leading(details.curves)]
    _section(console, "curves", curves)
    # The scores above are recorded as metrics too.
    single = [key for key in details.metrics if key not in details.curves and not (result and key.startswith("eval/"))]
    if about.changed:
        _section(console, "changed", [(change, "") for change in about.changed])
    _section(console, "metrics", [(key, f"{details.metrics[key]:.6g}") for key in single])
    _section(console, "tags", _shown_tags(details.run.tags).items())
    _section(console, "params", details.params.items())
    _section(console, "models", [(model, "") for model in details.models])
    _section(console, f"artifacts in {details.artifact_folder}", [(name, "") for name in details.artifacts])


def write_details_json(details: RunDetails) -> None:
    """Write the same as one JSON document, curves in full."""
    about = _plain(summary(details.run))
    plain = {key: value for key, value in asdict(details).items() if key != "run"}
    result = None if details.run.result is None else details.run.result.model_dump(mode="json")
    head = {**about, "tags": details.run.tags}
    write_json({"run": {**head, **plain, "result": result}}, RUNS_SCHEMA)


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """Return a curve as bars: means of neighbours where there are more than `width` values, "×" where not finite."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [math.fsum(part) / len(part) for part in (values[a:b] for a, b in pairwise(edges))]
    finite = [value for value in means if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    return "".join(_bar(value, low, high) for value in means)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "×"
    return _BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] if high > low else _BARS[0]


def _leading(names: Iterable[str]) -> list[str]:
    """Return the names that are not variants of another: of "spearman" and "spearman_mean" the first. JSON has all."""
    known = list(names)
    return [name for name in known if not any(name.startswith(f"{other}_") for other in known)]


def _curve_line(values: Sequence[float]) -> str:
    return f"{sparkline(values)}  {values[0]:.4g} → {values[-1]:.4g}  ({len(values)} points)"


def _section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    if not rows:
        return
    console.print(f"\n[bold]{escape(title)}[/bold]")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        console.print(f"  {escape(name):<{width}}  {escape(value)}".rstrip())


def _shown_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(tags.items()) if not name.startswith("mlflow.")}


def _cells(run: Summary, full: bool) -> list[str]:
    when = run.started.isoformat(timespec="seconds") if full else _clock(run)[5:]
    numbers = (_number(run.dev, 2), _number(run.test, 2), when, _number(run.seconds, 1))
    line = (run.run_id if full else run.run_id[:8], run.recipe, run.seed, run.status, *numbers, run.note)
    return [" ".join(cell.split()) for cell in line]


def _more_cells(run: Summary) -> list[str]:
    cells = (_number(run.gain, 2), "; ".join(run.changed), run.name, run.experiment)
    return [" ".join(cell.split()) for cell in cells]


def _clock(run: Summary) -> str:
    return run.started.astimezone().strftime("%Y-%m-%d %H:%M")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
