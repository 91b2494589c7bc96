"""Stop runs from another process, and follow what they print: by files in their directories."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.record import STOP, folder_of, log_of
from registry.errors import CseError, MissingError, RunFailedError

STOP_SECONDS = 30.0
"""How long to wait for runs that were requested to stop."""
_POLL_SECONDS = 0.3


def request_stop(names: Sequence[str]) -> list[RecordedRun]:
    """Request runs to stop, by the first characters of their IDs or by name, and return them.

    Raises:
        CseError: If one of them is not running. Then none is stopped.
    """
    known = all_runs()
    found = {run.run_id: run for run in (_running(find_run(name, known)) for name in names)}
    for run_id in found:
        (folder_of(run_id) / STOP).touch()
    return list(found.values())


def wait_until_stopped(requested: Sequence[RecordedRun], seconds: float = STOP_SECONDS) -> None:
    """Wait until runs have ended, and print how each ended.

    Raises:
        RunFailedError: If some are still running after `seconds`. The request stays.
    """
    waiting, last = list(requested), time.monotonic() + seconds
    sys.stderr.write(f"waiting at most {seconds:.0f} s\n")
    while waiting:
        for run in [run for run in waiting if not is_running(run.run_id)]:
            waiting.remove(run)
            sys.stdout.write(f"{_named(run)}: {read_run(run.run_id).state.lower()}\n")
        if waiting and time.monotonic() > last:
            raise RunFailedError(
                f"still running after {seconds:.0f} s: {', '.join(map(_named, waiting))}",
                "a run ends when it records the next step, but not while it scores; `cse runs ls --live` shows it",
            )
        if waiting:
            time.sleep(_POLL_SECONDS)


def print_requested(requested: Sequence[RecordedRun]) -> None:
    """Print which runs were requested to stop."""
    for run in requested:
        sys.stdout.write(f"{_named(run)}: requested to stop\n")


def print_log(name: str, *, follow: bool = False) -> None:
    """Print what a run has printed; with `follow` also what it prints until it ends.

    Raises:
        UnknownNameError: If no run or several runs match.
        MissingError: If the run has no log.
    """
    run = find_run(name)
    file = log_of(run.run_id)
    if not file.exists():
        short = run.about.short
        raise MissingError(
            f"run {short} has no log", f"a log begins with the first step; `cse runs show {short}` shows the record"
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
    """Return whether the process of a run is alive."""
    return read_run(run_id).state == "RUNNING"


def _running(run: RecordedRun) -> RecordedRun:
    short = run.about.short
    if run.state == "FINISHED":
        raise CseError(f"run {short} is finished", f"`cse runs show {short}` shows its scores")
    if run.state != "RUNNING":
        raise CseError(f"run {short} is not running: {run.state}", f"`cse run --resume {short}` resumes it")
    return run


def _named(run: RecordedRun) -> str:
    return f"{run.about.short} {run.name}"
