"""The facts of one run (`cse runs show`) and its events (`cse runs logs`)."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Any

from rich.markup import escape

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import date_and_time, seed_list
from cse_cli.core.identity import SHORT
from cse_cli.core.results import WORD_OVERLAP, Scores
from cse_cli.runs.events import ENDS, Event, read_events, read_history
from cse_cli.runs.index import RecordedRun, find_run, read_run
from cse_cli.runs.listing import RUNS_SCHEMA, note, to_document
from cse_cli.runs.plans import plan_of_run
from cse_cli.runs.record import MODEL, About, log_of, read_recipe
from registry.errors import CseError, MissingError

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


def show_details(run: RecordedRun, *, everything: bool = False, json_: bool = False) -> None:
    """Print the results of a run, or all its recorded facts as text or as one JSON document."""
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
        shown = {key: _leading(values) for key, values in scores.items()}
        lines = [(key, "  ".join(f"{one} {scores[key][one]:.2f}" for one in names)) for key, names in shown.items()]
        _section(console, title, lines)
    curves, lines = document["curves"], []
    for key in _leading(curves):
        if everything or key == "train/loss" or not key.startswith(("health/", "loss/", "speed/", "train/")):
            points = [value for _, value in curves[key]]
            lines.append((key, f"{sparkline(points)}  {points[0]:.4g} → {points[-1]:.4g}  ({len(points)} points)"))
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
        message = f"run {run.about.short} has no log: it did not start"
        raise MissingError(message, f"show the record: cse runs show {run.about.short}", code="runs.no_log")
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
        case kind if kind in ENDS:
            action = f"\n  → {data['action']}" if data.get("action") else ""
            reason = data.get("message") or data.get("reason")
            return f"{kind}: {reason}{action}" if reason else kind
    return ""
