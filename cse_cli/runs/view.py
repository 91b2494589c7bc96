"""Recorded runs on stdout: as a table, tab-separated lines, sections of text, and JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.filesize import decimal
from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted, date_and_time, seed_list
from cse_cli.core.identity import SHORT, Identity
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.details import RunDetails
from cse_cli.runs.listing import Summary, summary

RUNS_SCHEMA = 3
"""Version of the JSON of `cse runs ls` and `show`."""
_COLUMNS = ("run", "recipe", "seed", "status", "dev", "test avg", "started", "seconds", "note")
_MORE_COLUMNS = ("gain", "changed", "name", "group", "experiment")
_NARROW = 100
"""In a terminal with fewer columns, the table shows changed settings instead of the training time."""
_STYLES = {"FINISHED": "green", "FAILED": "red", "STOPPED": "yellow", "LOST": "yellow", "RUNNING": "cyan"}
_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


def print_runs(runs: Sequence[Summary]) -> None:
    """Print one line for each run: a table in a terminal, tab-separated values in a pipe."""
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
    """Return one row for each run, with a column for changed settings if any run has some."""
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
    """Return "steps=10" for "train.steps=10". The pipe and JSON have the whole key."""
    key, equals, value = change.partition("=")
    return f"{key.rpartition('.')[2]}={value}" if equals else change


def write_runs_json(runs: Sequence[Summary]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [_plain(run) for run in runs]}, RUNS_SCHEMA)


def _plain(run: Summary) -> dict[str, Any]:
    return {**asdict(run), "started": run.started.isoformat()}


def print_removed(number: int, freed: int) -> None:
    """Print how many runs were removed, and how many bytes that freed."""
    sys.stdout.write(f"{counted(number, 'run')} removed, {decimal(freed)} freed\n")
    sys.stderr.write("copies of these runs in MLflow and other trackers stay: delete them there\n")


def print_garbage(sizes: Mapping[str, int]) -> None:
    """Print what can be deleted.

    Args:
        sizes: Description → bytes.
    """
    for what, size in sizes.items():
        sys.stdout.write(f"{what}: {decimal(size)}\n")
    total = decimal(sum(sizes.values()))
    sys.stdout.write(f"{total} would be freed\n" if sizes else "nothing to delete\n")


def print_freed(size: int) -> None:
    """Print how many bytes are free now."""
    sys.stdout.write(f"{decimal(size)} freed\n")


def print_exported(file: Path, number: int, size: int, left_out: int) -> None:
    """Print what was exported."""
    sys.stdout.write(f"{file}: {counted(number, 'run')}, {decimal(size)}\n")
    if left_out:
        sys.stderr.write(f"{counted(left_out, 'run')} left out: not finished, or without a readable result\n")


def print_imported(new: int, known: int) -> None:
    """Print how many runs were imported and how many were skipped."""
    sys.stdout.write(f"{counted(new, 'run')} imported{f', {known} already here' if known else ''}\n")


def print_details(details: RunDetails) -> None:
    """Print everything about a run, what most people want first."""
    console = Console(highlight=False, soft_wrap=True)
    run, about = details.run, summary(details.run)
    console.print(f"[bold]{escape(run.name)}[/bold]  {run.run_id}  {about.status}")
    took = f", {_number(about.seconds, 1)} s" if about.seconds is not None else ""
    place = f", {run.host}" if run.host else ""
    console.print(f"started {_clock(about)}{took}{escape(place)}{escape(about.note and f'; {about.note}')}")
    if result := run.result:
        for title, scores in (("scores", result.scores), ("before training", result.untrained)):
            _section(console, title, [(name, _metrics(values)) for name, values in scores.items()])
    curves = details.curves
    _section(console, "curves", [(key, _curve_line([value for _, value in curves[key]])) for key in _leading(curves)])
    _section(console, "changed settings", [(change, "") for change in about.changed])
    # The scores above are metrics too.
    single = {key: value for key, value in details.metrics.items() if not (result and key.startswith("eval/"))}
    _section(console, "metrics", [(key, f"{single[key]:.6g}") for key in single if key not in curves])
    _section(console, "tags", sorted({**run.tags, **about.tags}.items()))
    _section(console, "experiment", _experiment_lines(details))
    _section(console, "warnings", [(text, "") for text in details.history.warnings])
    _section(console, "settings", details.settings.items())
    if details.model:
        _section(console, "model", [(details.model, "")])
    mirrors = [(name, f"{there['id']} at {there['uri']}") for name, there in details.mirrors.items()]
    _section(console, "also recorded in", mirrors)
    _section(console, f"files in {run.about.path}", [(name, "") for name in details.files])


def _experiment_lines(details: RunDetails) -> Iterator[tuple[str, str]]:
    about = details.run.about
    yield "group", about.group
    if about.identity is not None:
        yield "ID", about.experiment
        yield from _identity_lines(about.identity)
    if about.plan is not None:
        yield "planned", f"{seed_list(about.plan.seeds)}, {date_and_time(about.plan.made)}"
    for name in ("study", "parent", "source", "git"):
        if value := getattr(about, name):
            yield name, value
    yield from ((f"commit of {name}", commit) for name, commit in about.commits.items())


def _identity_lines(identity: Identity) -> Iterator[tuple[str, str]]:
    yield "settings", identity.settings[:SHORT]
    if identity.text:
        yield "text", identity.text[:SHORT]
    yield from ((f"weights of {name}", digest[:SHORT]) for name, digest in identity.weights.items())
    yield from ((f"code of {name}", digest[:SHORT]) for name, digest in identity.code.items())


def write_details_json(details: RunDetails) -> None:
    """Write the same as one JSON document, with all points of the curves."""
    run, about = details.run, details.run.about
    document = {
        **_plain(summary(run)),
        **{name: getattr(run, name) for name in ("reason", "host", "ended", "damaged", "unreadable")},
        "about": about.model_dump(mode="json"),
        "recorded_tags": run.tags,
        "metrics": details.metrics,
        "curves": details.curves,
        "warnings": details.history.warnings,
        "datasets": details.history.datasets,
        "settings": details.settings,
        "result": None if run.result is None else run.result.model_dump(mode="json"),
        "mirrors": details.mirrors,
        "model": details.model or None,
        "folder": str(about.path),
        "files": details.files,
    }
    write_json({"run": document}, RUNS_SCHEMA)


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """Return a curve as bars: means of neighbors if there are more than `width` values, "×" if not finite."""
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
    """Return the names that are not variants of another one: of "spearman" and "spearman_mean" only the first."""
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


def _metrics(values: Mapping[str, float]) -> str:
    return "  ".join(f"{key} {values[key]:.2f}" for key in _leading(values))


def _cells(run: Summary, full: bool) -> list[str]:
    when = run.started.isoformat(timespec="seconds") if full else _clock(run)[5:]
    numbers = (_number(run.dev, 2), _number(run.test, 2), when, _number(run.seconds, 1))
    line = (run.run_id if full else run.run_id[:8], run.recipe, run.seed, run.status, *numbers, run.note)
    return [" ".join(cell.split()) for cell in line]


def _more_cells(run: Summary) -> list[str]:
    cells = (_number(run.gain, 2), "; ".join(run.changed), run.name, run.group, run.experiment)
    return [" ".join(cell.split()) for cell in cells]


def _clock(run: Summary) -> str:
    return run.started.astimezone().strftime("%Y-%m-%d %H:%M")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
