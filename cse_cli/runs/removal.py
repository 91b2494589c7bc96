"""Delete runs (`cse runs rm`) and unused files (`cse runs gc`)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cse_cli.core.paths import home, runs
from cse_cli.runs.index import RecordedRun, all_runs, find_run
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import ABOUT, folder_of, lock_of
from registry.errors import CseError

_YOUNG_SECONDS = 3600.0
"""Minimum age of a directory without `run.toml`. A process may be about to complete a younger one."""


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
        if run.state == "RUNNING":
            raise _running_error(run)
    return found


def remove(found: Sequence[RecordedRun]) -> int:
    """Delete runs with all their files, and return the number of bytes freed.

    An error for a run that was resumed in the meantime leaves the runs before it deleted.
    """
    freed = 0
    for run in found:
        lock, hidden = FileLock(lock_of(run.run_id)), run.about.path.with_name(f".{run.run_id}.removed")
        with FileLock(home() / "claims.lock"):  # no other process can claim the run now
            if not lock.acquire():
                raise _running_error(run)
            try:
                freed += size([run.about.path])
                run.about.path.rename(hidden)  # atomic, so that kill -9 leaves no partial run
            finally:
                lock.release()
        shutil.rmtree(hidden)
    return freed


def _running_error(run: RecordedRun) -> CseError:
    short = run.about.short
    return CseError(
        f"run {short} ({run.name}) is still running", f"stop it first: cse runs stop {short}", code="runs.running"
    )


def delete(paths: Sequence[Path]) -> None:
    """Delete files and directories."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def find_garbage() -> list[tuple[str, list[Path]]]:
    """Return checkpoints of finished runs, and drafts and incomplete runs of killed processes, with descriptions."""
    return [*_checkpoints(), *_incomplete()]


def size(paths: Sequence[Path]) -> int:
    """Return the number of bytes that deleting these files frees. Files with several hard links free none."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    found = [file.lstat() for file in files if file.is_symlink() or file.is_file()]
    return sum(one.st_size for one in found if one.st_nlink == 1)


def _checkpoints() -> Iterator[tuple[str, list[Path]]]:
    for run in all_runs():
        if run.state in ("FINISHED", "PRUNED"):
            left = [file for pattern in ("*.pt", "*.partial", "*.tmp") for file in run.about.path.glob(pattern)]
            if left:
                yield f"checkpoints and drafts of finished run {run.about.short}", sorted(left)


def _incomplete() -> Iterator[tuple[str, list[Path]]]:
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(runs()), key=lambda entry: entry.name):
            hidden = entry.name.startswith(".")
            complete = not hidden and (folder_of(entry.name) / ABOUT).exists()
            if entry.is_dir() and not complete and time.time() - entry.stat().st_mtime > _YOUNG_SECONDS:
                what = "draft or removed run" if hidden else "directory without run.toml"
                yield f"{what} {entry.name}", [Path(entry.path)]
