"""Communication between devices, with the gradient of one large batch. On one device, each function is the identity.

Every rank computes the same loss of the gathered rows, so the backward pass of each rank has the complete gradient of
its rows. Data parallelism then averages over ranks, which the factor `world` compensates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _Gather(torch.autograd.Function):
    """Rows of all devices, concatenated by rank."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        ctx.rows = local.shape[0]
        world = dist.get_world_size()
        parts = [torch.empty_like(local) for _ in range(world)]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        start = dist.get_rank() * ctx.rows
        return gradients[0][start : start + ctx.rows] * dist.get_world_size()


class _Sum(torch.autograd.Function):
    """Sum of a tensor over devices. The output of each device depends on the inputs of all."""

    @staticmethod
    def forward(_: Any, local: Tensor) -> Tensor:
        total = local.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


_single = False


def is_distributed() -> bool:
    """Return whether several processes train together, also inside `single_process`."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if is_distributed() and not _single else 1


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if is_distributed() and not _single else 0


@contextmanager
def single_process() -> Iterator[None]:
    """Make all functions of this module the identity, for work of one process while the others wait."""
    global _single
    before, _single = _single, True
    try:
        yield
    finally:
        _single = before


def all_devices(local: Tensor) -> Tensor:
    """Return (N, …): rows of all devices, with the exact gradient of one large batch.

    Args:
        local: (B, …) rows of this device. B must be equal on all devices.
    """
    if world_size() == 1:
        return local
    gathered: Tensor = _Gather.apply(local)  # type: ignore[no-untyped-call]
    return gathered


@torch.no_grad()
def mean_devices(local: Tensor) -> Tensor:
    """Return the mean of `local` over devices, without gradient."""
    if world_size() == 1:
        return local
    total = local.detach().clone()
    dist.all_reduce(total)
    return total / world_size()


def sum_devices(local: Tensor) -> Tensor:
    """Return the sum of `local` over devices, with gradient."""
    if world_size() == 1:
        return local
    total: Tensor = _Sum.apply(local)  # type: ignore[no-untyped-call]
    return total
