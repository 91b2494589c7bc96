"""Whole attention heads dropped in training, the same ones however the rows are laid out. Registers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class HeadDropout(nn.Dropout):
    """Draws which attention heads of each sentence and block stay, and what the others' weight is shared as.

    Of the H heads of a block each is dropped with probability p; the k that stay weigh H/k. Where all H were drawn,
    none is dropped.

    Source: DropHead (Zhou et al. 2020), in the form of Mirror-BERT's code (`drophead.py`), where a block that lost all
    its heads divides by zero.

    Args:
        rate: p.
        blocks: K.
        heads: H.
    """

    def __init__(self, rate: float, blocks: int, heads: int) -> None:
        super().__init__(rate)
        self.blocks, self.heads = blocks, heads

    def draw(self, rows: int, device: torch.device) -> Tensor | None:
        """Return (rows, K, H) the weight of each head; None where none is dropped."""
        if not self.training or self.p == 0:
            return None
        kept = torch.rand(rows, self.blocks, self.heads, device=device) >= self.p
        kept |= ~kept.any(-1, keepdim=True)
        return kept * (self.heads / kept.sum(-1, keepdim=True))


def droppable(model: Any) -> bool:
    """Whether each block of a transformers model hands its heads, side by side, to one module, as BERT's do."""
    blocks = getattr(model.encoder, "layer", None) or [None]
    return all(isinstance(getattr(getattr(b, "attention", None), "output", None), nn.Module) for b in blocks)


@contextmanager
def heads_weighted(model: Any, tokens: Tensor, sentences: Tensor) -> Iterator[None]:
    """Multiply what each attention head of a model gives by its weight.

    Args:
        model: A transformers model that is `droppable`.
        tokens: (b, 1, K, H) of padded rows, or (1, T, K, H) of a pack's tokens.
        sentences: (b, K, H), for blocks that are computed for the first tokens alone.
    """

    def weigh(block: int, _: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        context, *rest = given
        weights = (sentences if context.ndim == 2 else tokens)[..., block, :].to(context.dtype)
        heads = context.view(*context.shape[:-1], weights.shape[-1], -1) * weights.unsqueeze(-1)
        return (heads.flatten(-2), *rest)

    outputs = [block.attention.output for block in model.encoder.layer]
    handles = [output.register_forward_pre_hook(partial(weigh, block)) for block, output in enumerate(outputs)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
