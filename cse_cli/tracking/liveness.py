"""Is the process of a run that says RUNNING still there?"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import psutil

from cse_cli.tracking import tags as names

SILENCE = timedelta(minutes=30)
"""A run on another machine that has said nothing for so long is taken for dead; one lives beats every minute."""

_CLOCK_SECONDS = 2.0


def is_stale(tags: Mapping[str, str], now: datetime | None = None) -> bool:
    """Return whether a run that says RUNNING has no process any more, as far as its tags tell."""
    if _is_ours(tags):
        return not lives(int(tags[names.PID]), tags.get(names.PROCESS_STARTED))
    if names.HEARTBEAT not in tags:
        return False
    return (now or datetime.now(UTC)) - datetime.fromisoformat(tags[names.HEARTBEAT]) > SILENCE


def is_alive_here(tags: Mapping[str, str]) -> bool:
    """Return whether the run's process is one of this machine, other than this one, and alive."""
    if not _is_ours(tags) or int(tags[names.PID]) == os.getpid():
        return False
    return lives(int(tags[names.PID]), tags.get(names.PROCESS_STARTED))


def _is_ours(tags: Mapping[str, str]) -> bool:
    return tags.get(names.HOST) == socket.gethostname() and names.PID in tags


def lives(pid: int, started: str | None) -> bool:
    """Tell whether a process of this machine is alive; `started` is its start time in seconds, None is not checked."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # A process id is used again: only the same start time is the same process.
        return started is None or abs(process.create_time() - float(started)) < _CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
