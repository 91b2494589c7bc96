"""Lists of runs (`cse runs ls`), the facts of one (`cse runs show`) and its events (`cse runs logs`)."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted, date_and_time, parse_duration, seed_list
from cse_cli.core.identity import SHORT
from cse_cli.core.results import WORD_OVERLAP, Scores
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.events import ENDS, Event, read_events, read_history
from cse_cli.runs.index import STATES, RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.plans import plan_of_run
from cse_cli.runs.record import MODEL, About, log_of, read_recipe
from registry.errors import CseError, MissingError, UnknownNameError, suggestion

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
    limit: int | None = None,
) -> list[RecordedRun]:
    """Return the runs that match all options of `cse runs ls`, in order."""
    if status is not None and status.upper() not in STATES:
        raise UnknownNameError(
            f"--status: '{status}' is not a status.{suggestion(status.upper(), STATES)}",
            f"use {', '.join(STATES).lower()}",
            code="runs.unknown_status",
        )
    if sort not in _ORDERS:
        raise UnknownNameError(
            f"--sort: '{sort}' is not a column.{suggestion(sort, _ORDERS)}",
            f"use {', '.join(_ORDERS)}",
            code="runs.unknown_order",
        )
    earliest = None if since is None else parse_since(since)
    found = [
        run
        for run in all_runs()
        if (recipe is None or fnmatchcase(run.about.recipe, recipe))
        and (earliest is None or run.about.created >= earliest)
        and all(
            key in run.about.tags and (not equals or run.about.tags[key] == value)
            for key, equals, value in (tag.partition("=") for tag in tags)
        )
        and (status is None or run.state == status.upper())
    ]
    return sorted(found, key=lambda run: _sort_key(run, sort))[:limit]


def fold_trials(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], Counter[str]]:
    """Return the runs that are not trials, and search → number of its trials among `runs`."""
    trials = {(run.about.search, run.about.trial) for run in runs if run.about.is_trial}
    return [run for run in runs if not run.about.is_trial], Counter(search for search, _ in trials)


def parse_since(text: str) -> datetime:
    """Return the time of "2026-11-21", "2026-11-21 14:00", or "2d" and "3h" (ago)."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration("--since", text))
    except (CseError, OverflowError):
        raise CseError(
            f"--since: '{text}' is not a date or duration", "use 2026-11-21, 3h or 2d", code="runs.invalid_time"
        ) from None


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


def print_runs(runs: Sequence[RecordedRun], folded: Mapping[str, int] = MappingProxyType({})) -> None:
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


def _table(runs: Sequence[RecordedRun], width: int, folded: Mapping[str, int] = MappingProxyType({})) -> Table:
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
        "dev": _number(document["dev"], 2),
        "test avg": _number(document["test"], 2),
        "gain": _number(document["gain"], 2),
        "seconds": _number(document["seconds"], 1),
        "started": run.about.created.isoformat(timespec="seconds"),
        "changed": "; ".join(run.about.changes),
    }
    return {heading: " ".join(cells[heading].split()) for heading in _COLUMNS}


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


def show_details(run_id: str, *, everything: bool = False, json_: bool = False) -> None:
    """Print the results of a run, or all its recorded facts as text or as one JSON document."""
    run = read_run(run_id)
    document = _document(run)
    if json_:
        write_json({"run": document}, RUNS_SCHEMA)
    else:
        _print(run, document, everything)


def _document(run: RecordedRun) -> dict[str, Any]:
    folder, history = run.about.path, read_history(run.about.path)
    points = sorted(history.metrics.items())
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        **to_document(run),
        **{name: getattr(run, name) for name in ("reason", "host", "ended", "damaged", "unreadable")},
        "about": run.about.model_dump(mode="json"),
        "recorded_tags": run.tags,
        "metrics": {name: values[max(values)] for name, values in points},
        "curves": {name: sorted(values.items()) for name, values in points if len(values) > 1},
        "warnings": history.warnings,
        "datasets": history.datasets,
        "settings": settings_of(run.run_id),
        "result": None if run.result is None else run.result.model_dump(mode="json"),
        "mirrors": _mirrors(run),
        "model": str(folder / MODEL) if (folder / MODEL).is_dir() else None,
        "folder": str(folder),
        "files": sorted(str(path) for path in paths if path.parts[0] != "mirrors"),
    }


def settings_of(run_id: str) -> dict[str, str]:
    """Return dotted key → value of every setting of a run. It is empty for the record of a search."""
    with suppress(CseError):
        return dict(_leaves({k: v for k, v in read_recipe(run_id).items() if k not in ("description", "tune")}))
    return {}


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _mirrors(run: RecordedRun) -> dict[str, dict[str, str]]:
    found = {}
    for file in sorted(run.about.path.glob("mirrors/*.json")):
        with suppress(OSError, ValueError, AttributeError):  # the mirror writes a damaged file again
            state = json.loads(file.read_text(encoding="utf-8"))
            found[file.stem] = {name: str(state.get(name, "")) for name in ("uri", "id")}
    return found


def _print(run: RecordedRun, document: Mapping[str, Any], everything: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(run.name)}[/bold]  {run.run_id}  {run.state}")
    facts = [f"started {run.about.created.astimezone():%Y-%m-%d %H:%M}"]
    facts += [f"{run.seconds:.1f} s"] if run.seconds is not None else []
    facts += [text for text in (run.host, note(run)) if text]
    console.print(escape(", ".join(facts)))
    if run.result is not None and run.result.early_stop is not None:
        console.print(escape(run.result.early_stop.text))
    scored: dict[str, Scores] = {}
    if run.result is not None:
        scored = {"scores": run.result.scores, "before training": run.result.untrained}
        scored |= {WORD_OVERLAP: run.result.word_overlap}
    for title, scores in scored.items():
        _section(
            console,
            title,
            [
                (name, "  ".join(f"{key} {values[key]:.2f}" for key in _leading(values)))
                for name, values in scores.items()
            ],
        )
    curves = document["curves"]
    lines = []
    for key in _leading(curves):
        if not (everything or key == "train/loss") and key.startswith(("health/", "loss/", "speed/", "train/")):
            continue
        points = [value for _, value in curves[key]]
        line = f"{sparkline(points)}  {points[0]:.4g} → {points[-1]:.4g}  ({len(points)} points)"
        lines.append((key, line))
    _section(console, "curves", lines)
    _section(console, "changed settings", [(change, "") for change in run.about.changes])
    _section(console, "tags", sorted({**run.tags, **run.about.tags}.items()))
    _section(console, "warnings", [(text, "") for text in document["warnings"]])
    if everything:
        # Scores are metrics too.
        single = [key for key in document["metrics"] if key not in curves and not (scored and key.startswith("eval/"))]
        _section(console, "metrics", [(key, f"{document['metrics'][key]:.6g}") for key in single])
        _section(console, "experiment", _experiment_lines(run.about))
        _section(console, "settings", document["settings"].items())
    _section(console, "model", [(document["model"], "")] if document["model"] else [])
    mirrors = [(name, f"{known['id']} at {known['uri']}") for name, known in document["mirrors"].items()]
    _section(console, "also recorded in", mirrors)
    if everything:
        _section(console, f"files in {run.about.path}", [(name, "") for name in document["files"]])
    else:
        console.print(f"\nall curves, metrics, settings, identity and files: cse runs show {run.about.short} --all")


def _experiment_lines(about: About) -> Iterator[tuple[str, str]]:
    yield "group", about.group
    if (identity := about.identity) is not None:
        yield "ID", about.experiment
        yield "settings", identity.settings[:SHORT]
        if identity.text:
            yield "text", identity.text[:SHORT]
        yield from ((f"weights of {name}", digest[:SHORT]) for name, digest in identity.weights.items())
        yield from ((f"code of {name}", digest[:SHORT]) for name, digest in identity.code.items())
    if (plan := plan_of_run(about)) is not None:
        yield "planned", f"{seed_list(plan.seeds)}, {date_and_time(plan.made)}"
    yield from ((name, getattr(about, name)) for name in ("study", "parent", "source", "git") if getattr(about, name))
    yield from ((f"commit of {name}", commit) for name, commit in about.commits.items())


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """Return a curve as bars: means of neighbors if there are more than `width` values, "×" if not finite."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [math.fsum(part) / len(part) for part in (values[a:b] for a, b in pairwise(edges))]
    finite = [value for value in means if math.isfinite(value)]
    low = min(finite, default=0.0)
    scale = (len(_BARS) - 1) / ((max(finite, default=0.0) - low) or math.inf)
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "×" for value in means)


def _leading(names: Iterable[str]) -> list[str]:
    """Return the names that are not variants of another one: of "spearman" and "spearman_mean" only the first."""
    known = list(names)
    return [name for name in known if not any(name.startswith(f"{other}_") for other in known)]


def _section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    if not rows:
        return
    console.print(f"\n[bold]{escape(title)}[/bold]")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        console.print(f"  {escape(name):<{width}}  {escape(value)}".rstrip())


EVERY = 10.0
"""Seconds between two printed steps."""
_POLL_SECONDS = 0.3


def print_log(name: str, *, follow: bool = False, json_: bool = False) -> None:
    """Print the events of a run and the output of its process, with `follow` until the run ends.

    With `json_`, print all recorded events, one JSON object per line, without the output of the process.
    """
    run = find_run(name)
    position, last_step = 0, float("-inf")
    while True:
        ended = not follow or read_run(run.run_id).state != "RUNNING"  # before reading, so that the last lines are read
        for event, end in read_events(run.about.path, position, without=() if json_ else ("system", "file", "tags")):
            position = end
            if json_:
                document = {"kind": event.kind, "time": event.time, **event.data}
                sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
                continue
            if event.kind == "metrics":
                if event.time - last_step < EVERY or "train/loss" not in event.data["values"]:
                    continue
                last_step = event.time
            resume = f". To resume: cse run --resume {run.about.short}" if event.kind == "stopped" else ""
            for line in (_text(event) + resume).splitlines():
                sys.stdout.write(f"{datetime.fromtimestamp(event.time):%Y-%m-%d %H:%M:%S}  {line}\n")
        sys.stdout.flush()
        if ended:
            break
        time.sleep(_POLL_SECONDS)
    if not position:
        raise MissingError(
            f"run {run.about.short} has no log: it did not start",
            f"show the record: cse runs show {run.about.short}",
            code="runs.no_log",
        )
    if not json_ and (output := log_of(run.run_id)).exists():
        sys.stdout.write(output.read_text(encoding="utf-8", errors="replace"))


def _text(event: Event) -> str:
    """Return an event in words. Empty for an event without use to a reader."""
    data = event.data
    match event.kind:
        case "started":
            again = f", resuming after step {data['step']}" if data["step"] else ""
            return f"started on {data['host']}, process {data['pid']}: {data['steps']:,} steps{again}"
        case "progress":
            return f"{data['what']} …"
        case "metrics":
            return f"step {data['step']}  loss {float(data['values']['train/loss']):.4f}"
        case "evaluated":
            label = "untrained" if data["step"] == 0 else f"step {data['step']}"
            best = "  best" if data.get("best") else ""
            return label + "".join(f"  {key} {float(value):.2f}" for key, value in data["scores"].items()) + best
        case "warning":
            return f"warning: {data['text']}"
        case "halted":
            return str(data["reason"])
    if event.kind in ENDS:
        action = f"\n  → {data['action']}" if data.get("action") else ""
        reason = data.get("message") or data.get("reason")
        return f"{event.kind}: {reason}{action}" if reason else event.kind
    return ""
