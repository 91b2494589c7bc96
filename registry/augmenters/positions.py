"""Random places of a batch: what cut-offs, shuffles and dropout of token vectors draw from. Registers nothing."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from registry.tokens import Tokens

Scope = Literal["real", "all"]
"""Places of a row: its "real" tokens, [CLS] and [SEP] among them, or "all" of the batch's width, padding too."""


def in_scope(tokens: Tokens, scope: Scope) -> Tensor:
    """Return (B, L): whether each place is in scope."""
    return tokens.mask.bool() if scope == "real" else torch.ones_like(tokens.mask, dtype=torch.bool)


def share(sizes: Tensor, rate: float, at_least: int = 0) -> Tensor:
    """Return the whole part of each size times `rate`, not below `at_least` nor above the size.

    In double precision, so that it is Python's `int(size * rate)`.
    """
    wanted = (sizes.double() * rate).floor().long().clamp(min=at_least)
    return torch.minimum(wanted, sizes)


def choose(candidates: Tensor, numbers: Tensor) -> Tensor:
    """Return (B, n): so many of each row's candidates, drawn without replacement, each as likely as any other.

    Drawn from torch's global stream on the tensor's device, as dropout is.

    Args:
        candidates: (B, n) what may be drawn.
        numbers: (B,) how many, no more than there are.
    """
    order = shuffled(candidates)
    first = torch.arange(candidates.shape[1], device=candidates.device) < numbers.unsqueeze(1)
    return torch.zeros_like(candidates).scatter(1, order, first)


def shuffled(candidates: Tensor) -> Tensor:
    """Return (B, n): each row's places, candidates first in random order, then the others in their own order."""
    keys = torch.rand(candidates.shape, device=candidates.device).masked_fill(~candidates, 2.0)
    return keys.argsort(dim=1, stable=True)
