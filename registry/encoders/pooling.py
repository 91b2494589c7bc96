"""Token states → one vector a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

Pooling = Literal["cls", "mean", "last2", "first_last"]


def averaged(pooling: Pooling, first: int = 0) -> tuple[int, int] | None:
    """Return which two states a pooling averages, the upper one counted from the end; None where it reads the last.

    Training (`pool`) and exports (`registry.encoders.export`) take it from here.
    """
    return {"last2": (-2, -1), "first_last": (first, -1)}.get(pooling)


def needs_all_states(pooling: Pooling) -> bool:
    """Whether `pool` reads more than the last layer."""
    return averaged(pooling) is not None


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
    if pooling == "cls":
        return states[-1][:, 0]
    if (pair := averaged(pooling, first)) is None:
        return masked_mean(states[-1], mask)
    lower, upper = pair
    return masked_mean((states[upper] + states[lower]) / 2, mask)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the (B, D) mean of (B, L, D) over the places where `mask` (B, L) is 1."""
    weights = mask.unsqueeze(-1).expand(states.shape).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
