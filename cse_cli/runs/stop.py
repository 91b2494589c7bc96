"""Stop runs of other processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.record import request_end
from registry.errors import CseError, RunFailedError

STOP_SECONDS = 30.0
"""Longest time to wait for runs that were requested to stop."""
_POLL_SECONDS = 0.3


def request_stop(names: Sequence[str]) -> list[RecordedRun]:
    """Request runs to stop, by ID prefix or name, and return them. If one of them is not running, none is stopped."""
    known = all_runs()
    found = {run.run_id: run for run in (find_run(name, known) for name in names)}
    for run in found.values():
        if run.state != "RUNNING":
            todo = "cse runs show" if run.state == "FINISHED" else "cse run --resume"
            short = run.about.short
            raise CseError(f"run {short} is not running: {run.state}", f"{todo} {short}", code="runs.not_running")
    for run_id in found:
        request_end(run_id)
    return list(found.values())


def wait_until_stopped(requested: Sequence[RecordedRun], seconds: float = STOP_SECONDS) -> Iterator[RecordedRun]:
    """Wait up to `seconds` until runs have ended, and yield each when it has. The request stays if they have not."""
    waiting, last = list(requested), time.monotonic() + seconds
    sys.stderr.write(f"waiting up to {seconds:.0f} s\n")
    while True:
        for run in [*waiting]:
            if (now := read_run(run.run_id)).state != "RUNNING":
                waiting.remove(run)
                yield now
        if not waiting:
            return
        if time.monotonic() > last:
            names = ", ".join(f"{run.about.short} {run.name}" for run in waiting)
            raise RunFailedError(
                f"still running after {seconds:.0f} s: {names}",
                "wait until the next step is recorded (evaluation can take minutes): cse runs ls",
                code="runs.still_running",
            )
        time.sleep(_POLL_SECONDS)
