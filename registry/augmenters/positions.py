"""Random places of a batch, for cutoff, shuffle and dropout of token embeddings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from registry.tokens import Tokens

Scope = Literal["real", "all"]
"""Places of a row: its "real" tokens with [CLS] and [SEP], or "all" places with padding."""


def in_scope(tokens: Tokens, scope: Scope) -> Tensor:
    """Return (B, L): whether each place is in scope."""
    return tokens.mask.bool() if scope == "real" else torch.ones_like(tokens.mask, dtype=torch.bool)


def share(sizes: Tensor, rate: float, at_least: int = 0) -> Tensor:
    """Return ⌊size · rate⌋ for each size, at least `at_least` and at most the size.

    Computed in double precision, so it equals Python's `int(size * rate)`.
    """
    wanted = (sizes.double() * rate).floor().long().clamp(min=at_least)
    return torch.minimum(wanted, sizes)


def choose(candidates: Tensor, numbers: Tensor) -> Tensor:
    """Return (B, n): random candidates of each row, drawn without replacement from torch's global generator.

    Args:
        candidates: (B, n) whether each place can be drawn.
        numbers: (B,) number of places to draw, at most the number of candidates.
    """
    order = shuffled(candidates)
    first = torch.arange(candidates.shape[1], device=candidates.device) < numbers.unsqueeze(1)
    return torch.zeros_like(candidates).scatter(1, order, first)


def shuffled(candidates: Tensor) -> Tensor:
    """Return (B, n): the places of each row, first the candidates in random order, then the others in order."""
    keys = torch.rand(candidates.shape, device=candidates.device).masked_fill(~candidates, 2.0)
    return keys.argsort(dim=1, stable=True)
