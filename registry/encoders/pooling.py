"""Token states → one vector a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from registry.tokens import Tokens, at_least_single

Pooling = Literal["cls", "mean", "last2", "first_last", "mask", "last_mask"]
"""Of models whose layers are at hand."""

TokenPooling = Literal["last", "mean", "weighted_mean", "cls", "text"]
"""Of any model, by the mask alone: the same wherever a row is padded."""


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
        pooling: "cls" takes the first token of the last layer; the others average over the places in `mask`:
            "mean", "mask" and "last_mask" of the last layer, "last2" of the mean of the last two, "first_last" of the
            mean of `first` and last.
        states: (B, L, D) each: what entered the first block, then every block's output; only the last is needed for
            "cls" and "mean".
        mask: (B, L) 1 for real tokens, specials included; for "mask" and "last_mask" what `mask_places` returns.
        first: Index of the first layer: 0 is what entered the first block, 1 the first block's output.
    """
    if pooling == "cls":
        return states[-1][:, 0]
    if (pair := averaged(pooling, first)) is None:
        return masked_mean(states[-1], mask)
    lower, upper = pair
    return masked_mean((states[upper] + states[lower]) / 2, mask)


def reads_mask(pooling: Pooling) -> bool:
    """Whether a pooling takes the states of a template's [MASK]."""
    return pooling in ("mask", "last_mask")


def mask_places(pooling: Pooling, tokens: Tokens, mask: int | None) -> Tensor:
    """Return (B, L) 1 at the [MASK]s of the template, or of each row's last one alone for "last_mask".

    Args:
        pooling: One of the two.
        tokens: Rows in a template.
        mask: The id of [MASK].
    """
    assert tokens.text is not None
    places = (tokens.ids == mask) & (tokens.text == 0)
    if pooling == "last_mask":
        places = places & (places.flip(1).cumsum(1).flip(1) == 1)
    return places.long()


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the (B, D) mean of (B, L, D) over the places where `mask` (B, L) is 1."""
    weights = mask.unsqueeze(-1).expand(states.shape).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def pool_tokens(pooling: TokenPooling, states: Tensor, mask: Tensor) -> Tensor:
    """Return (B, D), in single precision at least.

    Args:
        pooling: "last" and "cls" take the last and the first real token, "mean" and "text" average real tokens, and
            "weighted_mean" weighs the t-th of them by t.
        states: (B, L, D).
        mask: (B, L) 1 for real tokens, at least one in each row; for "text" what `last_copies` returns.
    """
    states = at_least_single(states)
    if pooling in ("last", "cls"):
        places = last_places(mask) if pooling == "last" else mask.argmax(dim=1)
        return states[torch.arange(len(states), device=states.device), places]
    weights = mask if pooling in ("mean", "text") else mask.cumsum(dim=1) * mask
    shares = (weights / weights.sum(dim=1, keepdim=True)).to(states.dtype).unsqueeze(-1)
    # Padding may hold anything, and 0 · ∞ is no number.
    return (shares * states.masked_fill(shares == 0, 0)).sum(dim=1)


def last_copies(tokens: Tokens) -> Tensor:
    """Return (B, L) 1 where the sentence stands for the last time in its template; everywhere in a row without one."""
    assert tokens.text is not None
    backwards = tokens.text.flip(1)
    passed = ((backwards == 0) & (backwards.cumsum(dim=1) > 0)).cumsum(dim=1)
    found = (backwards * (passed == 0)).flip(1)
    return torch.where(found.any(dim=1, keepdim=True), found, tokens.mask)


def last_places(mask: Tensor) -> Tensor:
    """Return (B,) where the last 1 of each row of `mask` (B, L) stands."""
    return mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
