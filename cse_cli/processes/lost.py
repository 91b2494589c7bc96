"""A process that the others wait for in vain: who it was and why, as far as those that are left can know."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed has them, but not for a type checker

from cse_cli.processes import leaving
from cse_cli.processes.place import Place
from cse_cli.tracking.liveness import lives
from registry.errors import CseError, RunFailedError

_LOOK_SECONDS = 1.0
"""How long to look for who is gone: a connection may break before its process has ended."""
_BROKEN = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "NCCL")
"""Words of torch's errors when a collective lacks a process; gloo's have no type of their own."""


class LostRankError(RunFailedError):
    """Another process of the run is gone; the cause is there.

    Args:
        shown: Whether that process has shown it on this machine.
    """

    def __init__(self, message: str, shown: bool = False) -> None:
        super().__init__(message, "`cse run --resume` goes on from the last checkpoint")
        self.shown = shown


@dataclass(frozen=True)
class _Roster:
    """Who takes part, kept where all can read it.

    Args:
        store: The key-value store through which the processes found each other.
    """

    store: Store
    here: Place


_rosters: list[_Roster] = []


def enter(store: Store, here: Place) -> None:
    """Tell the others who this process is; wait until all have told."""
    kept = PrefixStore("cse/roster", store)
    kept.set(str(here.rank), json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    first = json.loads(kept.get("0"))
    if first["host"] == socket.gethostname() and here.rank > 0:
        leaving.follow(first["pid"])
    _rosters[:] = [_Roster(kept, here)]


def tell(error: CseError) -> bool:
    """Tell the others why this process ends; return whether it is the first to."""
    if isinstance(error, LostRankError) or not _rosters:
        return not _rosters
    roster = _rosters[0]
    text = json.dumps({"rank": roster.here.rank, "host": socket.gethostname(), "message": error.message})
    try:
        return bool(roster.store.compare_set("failed", "", text).decode() == text)
    except RuntimeError:  # whoever kept the store has left: somebody was first
        return False


@contextmanager
def explained() -> Iterator[None]:
    """Turn a collective that lacks a process into a message that says which, and let nothing disturb its recording.

    Raises:
        LostRankError: Another process is gone.
    """
    try:
        yield
    except CseError:
        if _rosters:
            leaving.ignore()  # the others have it too, and the first of them to leave has all ended
        raise
    except RuntimeError as error:
        if not _rosters or isinstance(error, torch.OutOfMemoryError) or not _is_broken(error):
            raise
        leaving.ignore()  # whoever started the processes now ends them all, and this one has something to record
        raise _why(_rosters[0], error) from error


def _is_broken(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(words in str(error) for words in _BROKEN)


def _why(roster: _Roster, error: RuntimeError) -> LostRankError:
    last = monotonic() + _LOOK_SECONDS
    while monotonic() < last:
        try:
            if (found := _told(roster) or _dead(roster)) is not None:
                return found
        except RuntimeError:  # whoever kept the store has left
            break
        sleep(0.1)
    first = str(error).strip().partition("\n")[0]
    return LostRankError(f"one of the other {roster.here.world - 1} processes is gone: {first}")


def _told(roster: _Roster) -> LostRankError | None:
    """Return what a process said before it ended."""
    if not roster.store.check(["failed"]):
        return None
    said = json.loads(roster.store.get("failed"))
    named = f"rank {said['rank']} of {roster.here.world} on {said['host']}"
    return LostRankError(f"{named}: {said['message']}", said["host"] == socket.gethostname())


def _dead(roster: _Roster) -> LostRankError | None:
    """Return which process of this machine is no more."""
    known = {rank: json.loads(roster.store.get(str(rank))) for rank in range(roster.here.world)}
    gone = [
        f"rank {rank} of {roster.here.world} (pid {one['pid']} on {one['host']})"
        for rank, one in known.items()
        if one["host"] == socket.gethostname() and not lives(one["pid"], None)
    ]
    return LostRankError(f"{', '.join(gone)} ended without a word: killed, or crashed") if gone else None
