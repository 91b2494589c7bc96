"""Token states → one vector a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

Pooling = Literal["cls", "mean", "last2", "first_last"]


def needs_all_states(pooling: Pooling) -> bool:
    """Whether `pool` reads more than the last layer."""
    return pooling in ("last2", "first_last")


def pool(pooling: Pooling, states: Sequence[Tensor], mask: Tensor, first: int = 0) -> Tensor:
    """Return (B, D).

    Args:
        pooling: "cls" takes the first token of the last layer; the others average over real tokens, specials included:
            "mean" of the last layer, "last2" of the mean of the last two, "first_last" of the mean of `first` and last.
        states: (B, L, D) each: what entered the first block, then every block's output; only the last is needed for
            "cls" and "mean".
        mask: (B, L) 1 for real tokens.
        first: Index of the first layer: 0 is what entered the first block, 1 the first block's output.
    """
    last = states[-1]
    if pooling == "cls":
        return last[:, 0]
    if pooling == "last2":
        last = (last + states[-2]) / 2
    elif pooling == "first_last":
        last = (last + states[first]) / 2
    return masked_mean(last, mask)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the (B, D) mean of (B, L, D) over the places where `mask` (B, L) is 1."""
    weights = mask.unsqueeze(-1).expand(states.shape).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
