"""Print the events of a run, line by line."""

from __future__ import annotations

import sys
import time
from datetime import datetime

from cse_cli.runs.events import ENDS, Event, read_events
from cse_cli.runs.index import find_run, read_run
from cse_cli.runs.record import log_of
from registry.errors import MissingError

EVERY = 10.0
"""Seconds between two printed steps."""
_POLL_SECONDS = 0.3


def print_log(name: str, *, follow: bool = False) -> None:
    """Print the events of a run and the output of its process, with `follow` until the run ends."""
    run = find_run(name)
    position, last_step = 0, float("-inf")
    while True:
        ended = not follow or read_run(run.run_id).state != "RUNNING"  # before reading, so that the last lines are read
        for event, end in read_events(run.about.path, position, without=("system", "file", "tags")):
            position = end
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
    if (output := log_of(run.run_id)).exists():
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
