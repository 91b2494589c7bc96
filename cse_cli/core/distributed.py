"""Processes that run one job together: how they join, exchange objects, and detect the loss of one of them.

Objects go over gloo, separately from the collectives of the devices. A process waits for as long as the other one
runs, because rank 0 may be writing a model or fitting a classifier.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from cse_cli.core import processes
from cse_cli.core.processes import ProcessRank, is_alive
from registry.accelerators import ACCELERATORS, accelerator, device_count
from registry.distributed import rank, single_process, world_size
from registry.errors import CseError, RunFailedError

START_SECONDS = 600.0
"""Maximum time in which all processes must start. Machines of a cluster start at different times."""
PATIENCE = timedelta(days=30)
"""Maximum time to wait for another process."""

T = TypeVar("T")


@contextmanager
def joined(here: ProcessRank, device: str) -> Iterator[None]:
    """Join the process group within the block. A single process does not join one.

    After a failure, the group is not destroyed, because this could wait for a crashed process. Exit instead.
    """
    if here.world == 1:
        yield
        return
    device_id = own_device(here, device)
    if device_id is not None:
        torch.accelerator.set_device_index(device_id)
    with explain_lost_rank():
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))
        roster = PrefixStore("cse/roster", store)
        roster.set(str(here.rank), json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        first = json.loads(roster.get("0"))  # waits for rank 0
        if first["host"] == socket.gethostname() and here.rank > 0:
            processes.exit_with_rank0(first["pid"])
        _rosters[:] = [(roster, here)]
        backends = "gloo"
        if device_id is not None:  # such as NCCL for CUDA devices
            backends = f"cpu:gloo,{device_id.type}:{dist.Backend.default_device_backend_map[device_id.type]}"
        dist.init_process_group(
            backends,
            store=PrefixStore("cse/group", store),
            rank=here.rank,
            world_size=here.world,
            device_id=device_id,
        )
        yield
        dist.barrier()  # no process leaves while another still sends to it
    dist.destroy_process_group()


def own_device(here: ProcessRank, device: str) -> torch.device | None:
    """Return the accelerator of one of several processes, or None on the CPU."""
    kind = accelerator()
    if device == "cpu" or (device == "auto" and kind is None):
        return None
    if device not in ("auto", *ACCELERATORS):
        raise CseError(
            f"--device: '{device}' is one device, but {here.world} processes need one each",
            "use --device auto",
            code="core.too_few_devices",
        )
    found = device_count() if device in ("auto", kind) else 0
    if here.local >= found:
        raise CseError(
            f"no device for process {here.local} of this machine: {found} found",
            f"start {found} processes, or use --device cpu" if found else "use --device cpu",
            code="core.too_few_devices",
        )
    return torch.device(str(kind), here.local)


def is_first_refused(here: ProcessRank, device: str) -> bool:
    """Return whether this is the first process of this machine without a device, so that only one prints the error."""
    for local in range(here.local):
        try:
            own_device(replace(here, local=local), device)
        except CseError:
            return False
    return True


_hosts: list[tuple[Any, Any]] = []
"""Process group of the devices, and the gloo group that belongs to it."""


def run_on_rank0(make: Callable[[], T]) -> T:
    """Run `make` on rank 0, and return its result, or raise its exception, on every rank."""
    if world_size() == 1:
        return make()
    if rank() > 0:
        made, error = _shared()
        if error is not None:
            raise error
        return made  # type: ignore[no-any-return]
    try:
        with single_process():
            made = make()
    except Exception as error:
        _shared((None, _portable(error)))
        raise
    _shared((made, None))
    return made


def rank0_first(make: Callable[[], T]) -> T:
    """Run `make` on rank 0, then on the other ranks, and return its result.

    The others find the files that rank 0 wrote. An exception on rank 0 is raised everywhere.
    """
    if world_size() == 1:
        return make()
    made: list[T] = []
    run_on_rank0(lambda: made.append(make()))
    return made[0] if made else make()


def gather_objects(value: T) -> list[T]:
    """Return the values of all processes, ordered by rank."""
    if world_size() == 1:
        return [value]
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, value, group=_group())
    return found


def _shared(value: Any = None) -> Any:
    """Return the value of rank 0 on every rank."""
    held = [value]
    dist.broadcast_object_list(held, src=0, group=_group(), device=torch.device("cpu"))
    return held[0]


def _group() -> Any:
    """Return the group for objects and CPU tensors. All processes create it at the same time."""
    world = dist.group.WORLD
    if not _hosts or _hosts[0][0] is not world:
        _hosts[:] = [(world, dist.new_group(backend="gloo", timeout=PATIENCE))]
    return _hosts[0][1]


def _portable(error: Exception) -> Exception:
    """Return the exception, or an equivalent one if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # nosec B301  # pickled in the same line
    except Exception:
        return RunFailedError(f"{type(error).__name__}: {error}", code="core.rank_failed")
    return error


_LOOK_SECONDS = 1.0
"""Time to search for the crashed process. A connection can break before its process has ended."""
_BROKEN = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "NCCL")
"""Parts of torch's messages when a collective lacks a process. The errors of gloo have no special type."""


class LostRankError(RunFailedError):
    """Another process of the run has ended. Its message is the cause. `shown`: it was printed on this machine."""

    def __init__(self, message: str, shown: bool = False) -> None:
        super().__init__(message, "resume from the last checkpoint with `cse run --resume`", code="core.lost_rank")
        self.shown = shown


_rosters: list[tuple[Store, ProcessRank]] = []
"""List of the processes of this process's run that all of them can read, and the rank of this one."""


def announce_failure(error: CseError) -> bool:
    """Publish why this process ends, and return whether it is the first one."""
    if isinstance(error, LostRankError) or not _rosters:
        return not _rosters
    store, here = _rosters[0]
    text = json.dumps({"rank": here.rank, "host": socket.gethostname(), "message": error.message})
    try:
        return bool(store.compare_set("failed", "", text).decode() == text)
    except RuntimeError:  # the process with the store has exited, so another one was first
        return False


@contextmanager
def explain_lost_rank() -> Iterator[None]:
    """Turn the error of a collective that lacks a process into a `LostRankError`, and ignore further signals."""
    try:
        yield
    except CseError:
        if _rosters:
            processes.ignore_signals()  # the launcher ends all processes when the first one exits
        raise
    except RuntimeError as error:
        is_broken = isinstance(error, dist.DistError) or any(words in str(error) for words in _BROKEN)
        if not _rosters or isinstance(error, torch.OutOfMemoryError) or not is_broken:
            raise
        processes.ignore_signals()  # the launcher ends all processes, and this one has to record the failure
        raise _lost_rank(*_rosters[0], error) from error


def _lost_rank(store: Store, here: ProcessRank, error: RuntimeError) -> LostRankError:
    """Return an error with the reason that a process published before it ended, or that names the ended processes."""
    host, last = socket.gethostname(), monotonic() + _LOOK_SECONDS
    with suppress(RuntimeError):  # the process with the store has exited
        while monotonic() < last:
            if store.check(["failed"]):
                failure = json.loads(store.get("failed"))
                named = f"rank {failure['rank']} of {here.world} on {failure['host']}"
                return LostRankError(f"{named}: {failure['message']}", failure["host"] == host)
            known = {rank: json.loads(store.get(str(rank))) for rank in range(here.world)}
            gone = [
                f"rank {rank} of {here.world} (pid {one['pid']} on {host})"
                for rank, one in known.items()
                if one["host"] == host and not is_alive(one["pid"], None)
            ]
            if gone:
                return LostRankError(f"{', '.join(gone)} ended without a message: killed, or crashed")
            sleep(0.1)
    first = str(error).strip().partition("\n")[0]
    return LostRankError(f"one of the other {here.world - 1} processes has ended: {first}")
