"""Word embeddings whose gradient is added to a table that stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from registry.distributed import world_size

_KEY = "cse_gradient"
"""Attribute of a table of word embeddings with the memory of its gradient."""
_adds_rows = ContextVar("adds_rows", default=False)


@contextmanager
def rows_added() -> Iterator[None]:
    """Let a backward pass inside this block add to the `grad` of word embeddings only the rows of its tokens.

    For each call, torch allocates and fills a gradient for the whole vocabulary: 47 MB for BERT's at 384 dimensions.
    Here it is one table, which the next step uses again. The block must be a `torch.autograd.backward` for all
    weights, because autograd itself receives no gradient. It has no effect if several processes train together, because
    they average the gradients of autograd, and none on a GPU, which reuses memory.
    """
    token = _adds_rows.set(world_size() == 1)
    try:
        yield
    finally:
        _adds_rows.reset(token)


def look_up(words: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the embeddings (B, L, W) of token IDs. Values and gradients are those of `words(ids)`."""
    if ids.device.type != "cpu" or not words.weight.requires_grad or not torch.is_grad_enabled():
        return words(ids)  # type: ignore[no-any-return]
    vectors: Tensor = _LookUp.apply(words.weight, ids, words.padding_idx)  # type: ignore[no-untyped-call]
    return vectors


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding = weight, -1 if padding is None else padding
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        weight, (ids,) = ctx.weight, ctx.saved_tensors
        if not _adds_rows.get():
            return _of_rows(gradient, ids, len(weight), ctx.padding), None, None
        used, places = torch.unique(ids, return_inverse=True)
        rows = _of_rows(gradient, places, len(used), -1).masked_fill_((used == ctx.padding).unsqueeze(1), 0)
        if weight.grad is None:
            kept = getattr(weight, _KEY, None)
            weight.grad = torch.zeros_like(weight) if kept is None else kept.zero_()
            setattr(weight, _KEY, weight.grad)
        weight.grad.index_add_(0, used, rows)
        return None, None, None


def _of_rows(gradient: Tensor, places: Tensor, count: int, padding: int) -> Tensor:
    """Return the sum (count, W) of the gradients at each place, without those of `padding`."""
    found: Tensor = torch.ops.aten.embedding_dense_backward(gradient, places, count, padding, False)
    return found
