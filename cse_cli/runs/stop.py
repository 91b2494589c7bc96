"""Stop runs of other processes and print their logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.record import STOP, folder_of, log_of
from registry.errors import CseError, MissingError, RunFailedError

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
        (folder_of(run_id) / STOP).touch()
    return list(found.values())


def wait_until_stopped(requested: Sequence[RecordedRun], seconds: float = STOP_SECONDS) -> None:
    """Wait up to `seconds` until runs have ended, and print how each ended. The request stays if they have not."""
    waiting, last = list(requested), time.monotonic() + seconds
    sys.stderr.write(f"waiting up to {seconds:.0f} s\n")
    while True:
        for run in [run for run in waiting if not is_running(run.run_id)]:
            waiting.remove(run)
            sys.stdout.write(f"{run.about.short} {run.name}: {read_run(run.run_id).state.lower()}\n")
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


def print_log(name: str, *, follow: bool = False) -> None:
    """Print the log of a run, with `follow` until the run ends."""
    run = find_run(name)
    file = log_of(run.run_id)
    if not file.exists():
        raise MissingError(
            f"run {run.about.short} has no log: it did not reach its first step",
            f"show the record: cse runs show {run.about.short}",
            code="runs.no_log",
        )
    with file.open(encoding="utf-8", errors="replace") as lines:
        while True:
            ended = not follow or not is_running(run.run_id)  # checked before reading, so that the last lines are read
            sys.stdout.write(lines.read())
            sys.stdout.flush()
            if ended:
                return
            time.sleep(_POLL_SECONDS)


def is_running(run_id: str) -> bool:
    """Return whether the process of a run is running."""
    return read_run(run_id).state == "RUNNING"
