"""Runs at work, seen and stopped from another process: by the files in their folders, without the tracking store."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from cse_cli.core import run_folder
from cse_cli.core.paths import runs
from cse_cli.core.run_folder import LOG, STOP, is_finished
from cse_cli.core.run_status import RunStatus, is_at_work, read_status
from registry.errors import CseError, MissingError, RunFailedError

STOP_SECONDS = 30.0
"""How long to wait for runs that were asked to stop."""
_POLL_SECONDS = 0.3


def ask_to_stop(prefixes: Sequence[str]) -> list[RunStatus]:
    """Ask the runs whose ids start so to stop; return how far they are. None is asked if one cannot be.

    Raises:
        CseError: No such run, or it is not at work; `UnknownNameError` names near ids.
    """
    found = {status.run_id: status for status in map(_at_work, prefixes)}
    for run_id in found:
        (runs() / run_id / STOP).touch()
    return list(found.values())


def wait_until_stopped(asked: Sequence[RunStatus], seconds: float = STOP_SECONDS) -> None:
    """Wait until runs have ended, and print how each did; one that is not waited for stays asked.

    Raises:
        RunFailedError: Some were still at work after `seconds`.
    """
    open_, last = list(asked), time.monotonic() + seconds
    sys.stderr.write(f"asked; waiting {seconds:.0f} s at most\n")
    while open_:
        for status in [one for one in open_ if not is_at_work(one.run_id)]:
            open_.remove(status)
            how = "had come to its end" if is_finished(status.run_id) else "stopped"
            sys.stdout.write(f"{_named(status)}: {how}\n")
        if open_ and time.monotonic() > last:
            raise RunFailedError(
                f"still at work after {seconds:.0f} s: {', '.join(map(_named, open_))}",
                "each ends at its next record, every ten steps, but not while it scores; `cse runs ls --live` shows it",
            )
        if open_:
            time.sleep(_POLL_SECONDS)


def print_asked(asked: Sequence[RunStatus]) -> None:
    """Print which runs were asked to stop."""
    for status in asked:
        sys.stdout.write(f"{_named(status)}: asked to stop\n")


def print_log(prefix: str, *, follow: bool = False) -> None:
    """Print the lines a run has told; with `follow` also those it tells until its end, or until Ctrl-C.

    Raises:
        UnknownNameError: No such run, or several.
        MissingError: It has no log.
    """
    run_id = run_folder.find(prefix).run_id
    file = runs() / run_id / LOG
    if not file.exists():
        raise MissingError(
            f"run {run_id[:8]} has no log",
            f"a log begins with the first step; `cse runs show {run_id[:8]}` shows what was recorded",
        )
    with file.open(encoding="utf-8", errors="replace") as lines:
        while True:
            ended = not follow or not is_at_work(run_id)  # asked before reading: what it told last is printed too
            sys.stdout.write(lines.read())
            sys.stdout.flush()
            if ended:
                return
            time.sleep(_POLL_SECONDS)


def _at_work(prefix: str) -> RunStatus:
    """Return how far a run is that can be asked to stop."""
    run_id = run_folder.find(prefix).run_id
    run, status = run_id[:8], read_status(run_id)
    if is_finished(run_id):
        raise CseError(f"run {run} is finished", f"`cse runs show {run}` shows its scores")
    if status is None:
        raise CseError(f"run {run} is not at work", f"`cse run --resume {run}` goes on with it")
    if status.is_gone:
        raise CseError(
            f"run {run} is not at work: its process {status.pid} is gone",
            f"`cse run --resume {run}` goes on with it, `cse runs close {run}` closes its record",
        )
    return status


def _named(status: RunStatus) -> str:
    return f"{status.run_id[:8]} {status.recipe} seed {status.seed}"
