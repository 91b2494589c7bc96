"""Dropout of whole attention heads in training, independent of the layout of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from registry.encoders import architectures


class HeadDropout(nn.Dropout):
    """Random weights for the attention heads of each sentence and block.

    Each of the H heads of a block is dropped with probability p. The k remaining heads get the weight H/k. If the
    sample drops all heads, none is dropped.

    Source: DropHead (Zhou et al. 2020), in the form of Mirror-BERT's code (`drophead.py`), which divides by zero if a
    block loses all its heads.
    """

    def __init__(self, rate: float, blocks: int, heads: int) -> None:
        super().__init__(rate)
        self.blocks, self.heads = blocks, heads

    def draw(self, rows: int, device: torch.device) -> Tensor | None:
        """Return the weights (rows, K, H) of the heads, or None if no head can be dropped."""
        if not self.training or self.p == 0:
            return None
        kept = torch.rand(rows, self.blocks, self.heads, device=device) >= self.p
        kept |= ~kept.any(-1, keepdim=True)
        return kept * (self.heads / kept.sum(-1, keepdim=True))


@contextmanager
def heads_weighted(model: Any, tokens: Tensor, sentences: Tensor) -> Iterator[None]:
    """Multiply the output of each attention head of a model by its weight.

    Args:
        model: Transformers model with known `architectures.head_outputs`.
        tokens: Weights (b, 1, K, H) for padded rows, or (1, T, K, H) for a pack's tokens.
        sentences: Weights (b, K, H) for blocks that compute only first tokens.
    """

    def weigh(block: int, _: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        context, *rest = given
        weights = (sentences if context.ndim == 2 else tokens)[..., block, :].to(context.dtype)
        heads = context.view(*context.shape[:-1], weights.shape[-1], -1) * weights.unsqueeze(-1)
        return (heads.flatten(-2), *rest)

    with ExitStack() as hooks:
        for number, output in enumerate(architectures.head_outputs(model)):
            hooks.enter_context(output.register_forward_pre_hook(partial(weigh, number)))
        yield
