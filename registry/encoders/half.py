"""Dropout and attention in bf16 on a CPU, where torch's kernels take a sixth of a training step.

torch's dropout draws a float for each value, and its attention converts each group of sentences to fp32 separately.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEVELS = 2**15
"""Number of values of the 15 random bits that decide whether a value is dropped."""

_INTEGERS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}


def is_active() -> bool:
    """Return whether the layers of encoders on a CPU compute in half precision."""
    return torch.is_autocast_enabled("cpu")


class Dropout(nn.Dropout):
    """Dropout of `dropout` in bf16 on a CPU, and of torch otherwise."""

    def forward(self, states: Tensor) -> Tensor:
        """Return the states with dropped values in training."""
        if self.training and self.p > 0 and states.device.type == "cpu" and is_active():
            return dropout(states, self.p)
        return F.dropout(states, self.p, self.training)


def dropout(states: Tensor, rate: float) -> Tensor:
    """Return the values times m / (1 − p), where m is 0 with probability p and otherwise 1.

    p is the rate rounded to a multiple of 1/32768. Four values share one random number of 64 bits.
    """
    dropped: Tensor = _Dropout.apply(states, rate)  # type: ignore[no-untyped-call]
    return dropped


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rate: float, scaling: float | None
) -> Tensor:
    """Return dropout(softmax(QKᵀ·scaling)) V, of shape (n, H, q, E), in fp32.

    Args:
        query: Queries (n, H, q, E).
        key: Keys (n, H, L, E).
        value: Values (n, H, L, E).
        mask: Boolean mask (n, 1, 1, L) with True for visible positions. Default: all.
        rate: Dropout rate of the attention weights.
        scaling: Factor of the scores. Default: 1/√E.
    """
    with torch.autocast("cpu", enabled=False):
        query, key, value = (states.float() for states in (query, key, value))
        scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.mT
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        return (dropout(weights, rate) if rate > 0 else weights) @ value


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, rate: float) -> Tensor:
        kept, count = round((1 - rate) * LEVELS), prod(states.shape)
        random = torch.empty(-(-count // 4), dtype=torch.int64).random_().view(torch.int16)[:count]
        # The difference is negative with probability 1 − p. Then the shift fills all 16 bits with its sign.
        mask = random.bitwise_and_(LEVELS - 1).sub_(kept).bitwise_right_shift_(15).view(states.shape)
        ctx.save_for_backward(mask)
        ctx.scale = LEVELS / kept
        return _masked(states, mask, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _masked(gradient, mask, ctx.scale), None


def _masked(values: Tensor, mask: Tensor, scale: float) -> Tensor:
    integers = _INTEGERS[values.dtype]
    return (values.view(integers) & mask.to(integers)).view(values.dtype).mul_(scale)
