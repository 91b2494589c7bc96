"""Delete runs (`cse runs rm`)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cse_cli.core.paths import home, runs
from cse_cli.runs.index import RecordedRun, all_runs, find_run
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import claim_of, is_busy
from registry.errors import CseError


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
    """Delete runs with all their files, and what a killed deletion left. Return the number of bytes freed.

    An error for a run that was resumed in the meantime leaves the runs before it deleted.
    """
    freed = 0
    for run in found:
        lock, hidden = FileLock(claim_of(run.run_id)), run.about.path.with_name(f".{run.run_id}.removed")
        with FileLock(home() / "claims.lock"):  # no other process can claim the run now
            if is_busy(run.run_id) or not lock.acquire():
                raise _running_error(run)
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


def _running_error(run: RecordedRun) -> CseError:
    short = run.about.short
    return CseError(
        f"run {short} ({run.name}) is still running", f"stop it first: cse runs stop {short}", code="runs.running"
    )


def size(paths: Sequence[Path]) -> int:
    """Return the number of bytes that deleting these files frees. Files with several hard links free none."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    found = [file.lstat() for file in files if file.is_symlink() or file.is_file()]
    return sum(one.st_size for one in found if one.st_nlink == 1)
