"""Word embeddings whose gradient is added to a table that stays in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from registry.distributed import world_size

_KEY = "cse_gradient"
"""Attribute of a table of word embeddings that holds the memory of its gradient between steps."""


def look_up(words: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the embeddings (B, L, W) of token IDs, equal to `words(ids)` in values and gradients.

    torch allocates and fills a gradient of the size of the vocabulary for each call: 47 MB for BERT's vocabulary at 384
    dimensions, a tenth of a training step on a CPU. Here each call adds the rows of its own tokens to one table.
    Several processes average gradients in hooks that only torch's own gradient triggers, and GPUs reuse memory, so both
    use torch's.
    """
    trained = torch.is_grad_enabled() and words.weight.requires_grad
    if trained and ids.device.type == "cpu" and world_size() == 1:
        vectors: Tensor = _LookUp.apply(words.weight, ids, words.padding_idx)  # type: ignore[no-untyped-call]
        return vectors
    return words(ids)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None) -> Tensor:
        ctx.weight, ctx.ids, ctx.padding = weight, ids, padding
        return nn.functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        weight, (gradient,) = ctx.weight, gradients
        used, places = torch.unique(ctx.ids, return_inverse=True)
        rows = torch.ops.aten.embedding_dense_backward(gradient, places, len(used), -1, False)
        if ctx.padding is not None:
            rows.masked_fill_((used == ctx.padding).unsqueeze(1), 0)
        if weight.grad is None:
            kept = getattr(weight, _KEY, None)
            weight.grad = torch.zeros_like(weight) if kept is None else kept.zero_()
            setattr(weight, _KEY, weight.grad)
        weight.grad.index_add_(0, used, rows)
        return None, None, None
