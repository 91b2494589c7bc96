"""Processes that run one job together: joining them, passing objects between them, and the loss of one of them.

Objects go over the hosts' network (gloo), beside the devices' own collectives, and wait for as long as the other
process lives: rank 0 may be writing a model or fitting a classifier meanwhile.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import pad

from cse_cli.core import processes
from cse_cli.core.processes import ProcessRank, is_alive
from registry.distributed import rank, single_process, world_size
from registry.errors import CseError, RunFailedError

START_SECONDS = 600.0
"""How long processes wait for each other at the start: machines of a cluster do not start at once."""
PATIENCE = timedelta(days=30)
"""Longest wait for another process."""

T = TypeVar("T")


@contextmanager
def joined(here: ProcessRank, device: str) -> Iterator[None]:
    """Join the processes that train together while the block lasts; a single one joins nothing.

    After a failure the group is not left in order, since that may wait for processes that are gone: end the process.

    Args:
        here: Which of them.
        device: As `cse_cli.core.devices.choose` takes it.

    Raises:
        CseError: There is no device for this process, or another one is gone.
    """
    if here.world == 1:
        yield
        return
    device_id = own_device(here, device)
    if device_id is not None:
        torch.cuda.set_device(device_id)
    with explain_lost_rank():
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))
        _register(store, here)
        dist.init_process_group(
            "gloo" if device_id is None else "cpu:gloo,cuda:nccl",
            store=PrefixStore("cse/group", store),
            rank=here.rank,
            world_size=here.world,
            device_id=device_id,
        )
        yield
        dist.barrier()  # no process leaves while another still sends to it
    dist.destroy_process_group()


def own_device(here: ProcessRank, device: str) -> torch.device | None:
    """Return the CUDA device of a process among several; None where they compute on the CPU.

    Raises:
        CseError: All are to share one device, or there are too few.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return None
    if device not in ("auto", "cuda"):
        raise CseError(
            f"--device: '{device}' is one device, and {here.world} processes need one each", "use --device cuda"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if here.local >= found:
        raise CseError(
            f"process {here.local} of this machine has no CUDA device of its own: {found} found",
            f"start {found} here, or use --device cpu" if found else "use --device cpu",
        )
    return torch.device("cuda", here.local)


def is_first_refused(here: ProcessRank, device: str) -> bool:
    """Whether no process of this machine before this one is without a device: one message is enough."""
    for local in range(here.local):
        try:
            own_device(replace(here, local=local), device)
        except CseError:
            return False
    return True


_hosts: list[tuple[Any, Any]] = []
"""The process group that the hosts' group was made for, and that group."""


def run_on_rank0(make: Callable[[], T], meanwhile: Callable[[], None] | None = None) -> T:
    """Return what `make` gives on rank 0, which runs it by itself while the others wait for the result.

    Args:
        make: Its result, or what it raises, reaches every process.
        meanwhile: What the others do until then; `make` ends it.
    """
    if world_size() == 1:
        return make()
    if rank() > 0:
        if meanwhile is not None:
            meanwhile()
        made, error = shared()
        if error is not None:
            raise error
        return made  # type: ignore[no-any-return]
    try:
        with single_process():
            made = make()
    except Exception as error:
        shared((None, _portable(error)))
        raise
    shared((made, None))
    return made


def rank0_first(make: Callable[[], T]) -> T:
    """Return what `make` gives here; rank 0 runs it before the others begin.

    What it leaves on disk is there for them; what it raises there is raised everywhere.
    """
    if world_size() == 1:
        return make()
    made: list[T] = []
    run_on_rank0(lambda: made.append(make()))
    return made[0] if made else make()


def gather_objects(value: T) -> list[T]:
    """Return the values of all processes, by rank."""
    if world_size() == 1:
        return [value]
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, value, group=_group())
    return found


def shared(value: Any = None) -> Any:
    """Return rank 0's value, also while rank 0 is `alone`: for processes that answer it meanwhile."""
    held = [value]
    dist.broadcast_object_list(held, src=0, group=_group(), device=torch.device("cpu"))
    return held[0]


def gather_rows(local: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return, on rank 0, each process's (n, D) rows on the CPU, by rank; on the others nothing.

    Args:
        local: This process's own.
        sizes: How many each process has.
    """
    padded = pad(local, (0, 0, 0, max(sizes) - len(local)))
    parts = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, parts, dst=0, group=_group())
    return [] if parts is None else [part[:size] for part, size in zip(parts, sizes, strict=True)]


def _group() -> Any:
    """Return the group for objects and for tensors on the CPU; all processes come here first at the same time."""
    world = dist.group.WORLD
    if not _hosts or _hosts[0][0] is not world:
        _hosts[:] = [(world, dist.new_group(backend="gloo", timeout=PATIENCE))]
    return _hosts[0][1]


def _portable(error: Exception) -> Exception:
    """Return the exception, or where it cannot be sent to another process one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))  # nosec B301  # of our own making, one line before
    except Exception:
        return RunFailedError(f"{type(error).__name__}: {error}")
    return error


_LOOK_SECONDS = 1.0
"""How long to look for who is gone: a connection may break before its process has ended."""
_BROKEN = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "NCCL")
"""Words of torch's errors when a collective lacks a process; gloo's have no type of their own."""


class LostRankError(RunFailedError):
    """Another process of the run has ended; its own message is the cause.

    Args:
        shown: Whether that process has printed it on this machine.
    """

    def __init__(self, message: str, shown: bool = False) -> None:
        super().__init__(message, "`cse run --resume` goes on from the last checkpoint")
        self.shown = shown


@dataclass(frozen=True)
class _Roster:
    """The processes of a run, kept where all of them can read it.

    Args:
        store: The key-value store through which the processes found each other.
    """

    store: Store
    here: ProcessRank


_rosters: list[_Roster] = []


def _register(store: Store, here: ProcessRank) -> None:
    """Write this process's host and id for the others; wait for rank 0's."""
    kept = PrefixStore("cse/roster", store)
    kept.set(str(here.rank), json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    first = json.loads(kept.get("0"))
    if first["host"] == socket.gethostname() and here.rank > 0:
        processes.follow(first["pid"])
    _rosters[:] = [_Roster(kept, here)]


def announce_failure(error: CseError) -> bool:
    """Leave the others a message why this process ends; return whether it is the first to."""
    if isinstance(error, LostRankError) or not _rosters:
        return not _rosters
    roster = _rosters[0]
    text = json.dumps({"rank": roster.here.rank, "host": socket.gethostname(), "message": error.message})
    try:
        return bool(roster.store.compare_set("failed", "", text).decode() == text)
    except RuntimeError:  # the process that keeps the store has left: another one was first
        return False


@contextmanager
def explain_lost_rank() -> Iterator[None]:
    """Turn the error of a collective that lacks a process into one that names it; ignore signals from then on.

    Raises:
        LostRankError: Another process is gone.
    """
    try:
        yield
    except CseError:
        if _rosters:
            processes.ignore()  # the others have it too, and the first of them to leave has all ended
        raise
    except RuntimeError as error:
        if not _rosters or isinstance(error, torch.OutOfMemoryError) or not _is_broken(error):
            raise
        processes.ignore()  # the launcher now ends all processes, and this one has something to record
        raise _why(_rosters[0], error) from error


def _is_broken(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(words in str(error) for words in _BROKEN)


def _why(roster: _Roster, error: RuntimeError) -> LostRankError:
    last = monotonic() + _LOOK_SECONDS
    while monotonic() < last:
        try:
            if (found := _told(roster) or _dead(roster)) is not None:
                return found
        except RuntimeError:  # the process that keeps the store has left
            break
        sleep(0.1)
    first = str(error).strip().partition("\n")[0]
    return LostRankError(f"one of the other {roster.here.world - 1} processes is gone: {first}")


def _told(roster: _Roster) -> LostRankError | None:
    """Return the message that a process left before it ended."""
    if not roster.store.check(["failed"]):
        return None
    failure = json.loads(roster.store.get("failed"))
    named = f"rank {failure['rank']} of {roster.here.world} on {failure['host']}"
    return LostRankError(f"{named}: {failure['message']}", failure["host"] == socket.gethostname())


def _dead(roster: _Roster) -> LostRankError | None:
    """Return which processes of this machine have ended."""
    known = {rank: json.loads(roster.store.get(str(rank))) for rank in range(roster.here.world)}
    gone = [
        f"rank {rank} of {roster.here.world} (pid {one['pid']} on {one['host']})"
        for rank, one in known.items()
        if one["host"] == socket.gethostname() and not is_alive(one["pid"], None)
    ]
    return LostRankError(f"{', '.join(gone)} ended without a message: killed, or crashed") if gone else None
