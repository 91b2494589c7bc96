"""Word embeddings whose gradient is added to a table that stays in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from registry.distributed import world_size

_KEY = "cse_gradient"
"""Attribute of a table of word embeddings with the memory of its gradient."""


def look_up(words: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the embeddings (B, L, W) of token IDs. Values and gradients are those of `words(ids)`.

    For each call, torch allocates and fills a gradient for the whole vocabulary: 47 MB for BERT's at 384 dimensions.
    Here the backward pass adds the rows of its tokens to one table, which the next step uses again. Other processes need
    the hooks of torch's gradient, and a GPU reuses memory, so both use torch's.
    """
    trained = torch.is_grad_enabled() and words.weight.requires_grad
    if not trained or ids.device.type != "cpu" or world_size() > 1:
        return words(ids)  # type: ignore[no-any-return]
    vectors: Tensor = _LookUp.apply(words.weight, ids, words.padding_idx)  # type: ignore[no-untyped-call]
    return vectors


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding = weight, padding
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        weight, (ids,) = ctx.weight, ctx.saved_tensors
        used, places = torch.unique(ids, return_inverse=True)
        rows = torch.ops.aten.embedding_dense_backward(gradient, places, len(used), -1, False)
        if ctx.padding is not None:
            rows.masked_fill_((used == ctx.padding).unsqueeze(1), 0)
        if weight.grad is None:
            kept = getattr(weight, _KEY, None)
            weight.grad = torch.zeros_like(weight) if kept is None else kept.zero_()
            setattr(weight, _KEY, weight.grad)
        weight.grad.index_add_(0, used, rows)
        return None, None, None
