"""Stop runs of other processes (`cse runs stop`), and delete runs (`cse runs rm`)."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cse_cli.core.paths import home, runs
from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.lock import CLAIM, FileLock
from cse_cli.runs.record import is_busy, request_end
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
            action = "wait until the next step is recorded (evaluation can take minutes): cse runs ls"
            raise RunFailedError(f"still running after {seconds:.0f} s: {names}", action, code="runs.still_running")
        time.sleep(_POLL_SECONDS)


def with_children(named: Sequence[RecordedRun], known: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return runs and all their child runs, such as the trials of a search."""
    wanted = {run.run_id for run in named}
    while below := {run.run_id for run in known if run.about.parent in wanted} - wanted:
        wanted |= below
    return [run for run in known if run.run_id in wanted]


def find_removable(names: Sequence[str]) -> list[RecordedRun]:
    """Return the runs with these ID prefixes or names, and their child runs."""
    known = all_runs()
    found = with_children([find_run(name, known) for name in names], known)
    for run in found:
        _refuse_running(run, is_running=run.state == "RUNNING")
    return found


def remove(found: Sequence[RecordedRun]) -> int:
    """Delete runs with all their files, and what a killed deletion left. Return the number of bytes freed.

    An error for a run that was resumed in the meantime leaves the runs before it deleted.
    """
    freed = 0
    for run in found:
        lock, hidden = FileLock(run.about.path / CLAIM), run.about.path.with_name(f".{run.run_id}.removed")
        with FileLock(home() / "claims.lock"):  # no other process can claim the run now
            _refuse_running(run, is_running=bool(is_busy(run.run_id)) or not lock.acquire())
            try:
                search = [home() / "tuning" / run.about.search] if run.about.summary == "tuning" else []
                freed += size([run.about.path, *search])
                run.about.path.rename(hidden)  # atomic, so that kill -9 leaves no partial run
                for folder in search:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                lock.release()
        for left in runs().glob(".*.removed"):
            with suppress(FileNotFoundError):  # another process is deleting it, too
                shutil.rmtree(left)
    return freed


def _refuse_running(run: RecordedRun, *, is_running: bool) -> None:
    if is_running:
        message = f"run {run.about.short} ({run.name}) is still running"
        raise CseError(message, f"stop it first: cse runs stop {run.about.short}", code="runs.running")


def size(paths: Sequence[Path]) -> int:
    """Return the number of bytes that deleting these files frees. Files with several hard links free none."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    found = [file.lstat() for file in files if file.is_symlink() or file.is_file()]
    return sum(one.st_size for one in found if one.st_nlink == 1)
