"""Tensors that every device shares, with the gradient of one big batch. On one device each function is the identity.

Every rank computes the same loss of the gathered rows, so the gradient of a rank's rows is already complete in its own
backward pass. Data parallelism then averages over ranks, which is undone here by the factor `world`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _Gather(torch.autograd.Function):
    """All devices' rows below each other, by rank."""

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
    """The sum of a tensor over devices; each device's output depends on every device's input."""

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
    """Return whether this process is one of several that run the same thing, whatever `single_process` says."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if is_distributed() and not _single else 1


def rank() -> int:
    """Return this process's place among them."""
    return dist.get_rank() if is_distributed() and not _single else 0


@contextmanager
def single_process() -> Iterator[None]:
    """Make every function here the identity: for work that one process does while the others wait for it."""
    global _single
    before, _single = _single, True
    try:
        yield
    finally:
        _single = before


def all_devices(local: Tensor) -> Tensor:
    """Return (N, …): the rows of every device, with the exact gradient of one big batch.

    Args:
        local: (B, …); B must be equal on all devices.
    """
    if world_size() == 1:
        return local
    gathered: Tensor = _Gather.apply(local)  # type: ignore[no-untyped-call]
    return gathered


@torch.no_grad()
def mean_devices(local: Tensor) -> Tensor:
    """Return the mean of `local` over devices, without gradient: of a loss, its value for the whole batch."""
    if world_size() == 1:
        return local
    total = local.detach().clone()
    dist.all_reduce(total)
    return total / world_size()


def sum_devices(local: Tensor) -> Tensor:
    """Return the sum of `local` over devices, with gradient: statistics that all rows of a batch share."""
    if world_size() == 1:
        return local
    total: Tensor = _Sum.apply(local)  # type: ignore[no-untyped-call]
    return total
