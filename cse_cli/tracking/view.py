"""Recorded runs on stdout: as a table, tab-separated lines, sections of text, and JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean

from rich.console import Console
from rich.markup import escape

from cse_cli.core.console import write_json
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.tracking.reader import RecordedRun, RunDetails
from cse_cli.tracking.tags import CONFIRMS, PRUNED, RECIPE, SEED, TRIAL, TUNE

_COLUMNS = ("run", "recipe", "seed", "status", "dev", "test avg", "started", "seconds", "note")
_STYLES = {"FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "STALE": "yellow", "RUNNING": "cyan"}
_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


@dataclass(frozen=True)
class Summary:
    """A run as `cse runs ls` shows it.

    Args:
        dev: The selecting metric at the selected state.
        test: Mean over the test evaluators that report the same metric, each rounded as papers print it.
        seconds: Training time of a finished run, else how long the record was open.
        note: What a reader of the numbers must know.
    """

    run_id: str
    recipe: str
    seed: str
    status: str
    dev: float | None
    test: float | None
    started: datetime
    seconds: float | None
    note: str


def summary(run: RecordedRun) -> Summary:
    """Return the line of a run."""
    result = run.result
    open_for = (run.ended - run.started).total_seconds() if run.ended else None
    return Summary(
        run_id=run.run_id,
        recipe=result.recipe if result else run.tags.get(RECIPE, run.name),
        seed=str(result.seed) if result else run.tags.get(SEED, ""),
        status=run.status,
        dev=_dev(result) if result else None,
        test=_test(result) if result else None,
        started=run.started,
        seconds=result.seconds if result else open_for,
        note=run.unreadable or ", ".join(_notes(run)),
    )


def _dev(result: Result) -> float | None:
    return None if result.selected_step is None else result.curve.get(result.selected_step)


def _test(result: Result) -> float | None:
    selecting, _, metric = (result.select or ".spearman").rpartition(".")
    others = [name for name in result.scores if name != selecting and not name.endswith("dev")]
    wanted = list(STS_TASKS) if set(STS_TASKS) <= set(others) else others
    values = [round(result.scores[name][metric], 2) for name in wanted if metric in result.scores[name]]
    return fmean(values) if values else None


def _notes(run: RecordedRun) -> Iterator[str]:
    if TUNE in run.tags:
        trial = run.tags.get(TRIAL)
        yield f"search {run.tags[TUNE]}" if trial is None else f"trial {trial}"
    if CONFIRMS in run.tags:
        yield f"confirms {run.tags[CONFIRMS]}"
    if PRUNED in run.tags:
        yield "pruned"
    if run.result is not None and run.result.test_selected:
        yield "chosen on test data"


def print_runs(runs: Sequence[Summary]) -> None:
    """Print a line a run: a table on a terminal, tab-separated values into a pipe."""
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(plain_table(_COLUMNS, [_cells(run, full=True) for run in runs])))
        return
    lines = [_cells(run, full=False)[:-1] for run in runs]
    rows = (Row(label, tuple(Cell(text, style=_STYLES.get(text, "")) for text in texts)) for label, *texts in lines)
    table = Table("", _COLUMNS[1:-1], tuple(rows), label=_COLUMNS[0], align="lprlrrlr")
    console = Console(highlight=False)
    console.print(as_rich(table, gap=1))
    for run in runs:
        if run.note:
            console.print(f"{run.run_id[:8]}: {escape(run.note)}")


def write_runs_json(runs: Sequence[Summary]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [{**asdict(run), "started": run.started.isoformat()} for run in runs]})


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
    _section(console, "metrics", [(key, f"{details.metrics[key]:.6g}") for key in single])
    _section(console, "tags", _shown_tags(details.run.tags).items())
    _section(console, "params", details.params.items())
    _section(console, f"artifacts in {details.artifact_folder}", [(name, "") for name in details.artifacts])


def write_details_json(details: RunDetails) -> None:
    """Write the same as one JSON document, curves in full."""
    about = asdict(summary(details.run))
    plain = {key: value for key, value in asdict(details).items() if key != "run"}
    result = None if details.run.result is None else details.run.result.model_dump(mode="json")
    head = {**about, "started": details.run.started.isoformat(), "name": details.run.name, "tags": details.run.tags}
    write_json({"run": {**head, **plain, "result": result}})


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


def _clock(run: Summary) -> str:
    return run.started.astimezone().strftime("%Y-%m-%d %H:%M")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
