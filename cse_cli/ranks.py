"""What processes that run one job together tell each other: the first one decides and writes, the others follow.

All of it goes over the hosts' network, beside the devices' own collectives, and waits for as long as the other process
lives: the first one may be writing a model or fitting a classifier meanwhile.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from registry.distributed import alone, rank, world_size
from registry.errors import RunFailedError

T = TypeVar("T")

PATIENCE = timedelta(days=30)
"""Longest wait for another process."""

_hosts: list[tuple[Any, Any]] = []
"""The process group that the hosts' group was made for, and that group."""


def from_first(make: Callable[[], T], meanwhile: Callable[[], None] | None = None) -> T:
    """Return what `make` gives on the first process, which runs it by itself while the others wait for it.

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
        with alone():
            made = make()
    except Exception as error:
        shared((None, _portable(error)))
        raise
    shared((made, None))
    return made


def after_first(make: Callable[[], T]) -> T:
    """Return what `make` gives here, which the first process has done before the others begin.

    What it leaves on disk is there for them; what it raises there is raised everywhere.
    """
    if world_size() == 1:
        return make()
    made: list[T] = []
    from_first(lambda: made.append(make()))
    return made[0] if made else make()


def from_all(value: T) -> list[T]:
    """Return the values of all processes, by rank."""
    if world_size() == 1:
        return [value]
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, value, group=_group())
    return found


def shared(value: Any = None) -> Any:
    """Return the first process's value, `alone` or not: for those that answer it while it works by itself."""
    held = [value]
    dist.broadcast_object_list(held, src=0, group=_group(), device=torch.device("cpu"))
    return held[0]


def rows_at_first(local: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return, on the first process, each one's (n, D) rows on the CPU, by rank; on the others nothing.

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
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RunFailedError(f"{type(error).__name__}: {error}")
    return error
