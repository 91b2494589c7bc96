"""Poolings: from the states of a sentence's tokens to its embedding.

A plug-in adds one with the entry point `cse.poolings`, or in a Python file:

    @POOLINGS.register("max")
    def maximum(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        '''Return the largest value of each dimension over the real tokens.'''
        return states[0].masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from torch import Tensor

from registry.machinery.core import POOLINGS
from registry.tokens import Tokens, at_least_single
from registry.types import BUILT_IN


def _registered(name: str) -> str:
    if name not in BUILT_IN and name not in POOLINGS.names():
        own = map(repr, POOLINGS.names())
        raise ValueError(f"Input should be {' or '.join(own) or 'your own pooling (`--plugin FILE`)'}")
    return name


@dataclass(frozen=True)
class _Names:
    """Mark of a parameter that names a pooling."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with all names."""
        return {**handler(core), "enum": sorted({*BUILT_IN, *POOLINGS.names()})}


PoolingName = Annotated[str, AfterValidator(_registered), _Names()]
"""Name of a pooling of a plug-in."""


def averaged(pooling: str, first: int = 0) -> tuple[int, int] | None:
    """Return the indices of the two states that a pooling averages, or None if it uses only the last state."""
    return {"last2": (-2, -1), "first_last": (first, -1)}.get(pooling)


def needs_all_states(pooling: str) -> bool:
    """Return whether `pool` uses more than the last layer."""
    return averaged(pooling) is not None


def pool(pooling: str, states: Sequence[Tensor], mask: Tensor, first: int = 0) -> Tensor:
    """Return the pooled states (B, D), in single or double precision.

    Args:
        pooling: "cls" is the first token of the last layer, "last" the last one. The others average over the positions
            in `mask`: "mean", "text", "mask" and "last_mask" of the last layer, "weighted_mean" with weight t for the
            t-th of them, "last2" of the mean of the last two layers, "first_last" of the mean of `first` and the last
            layer.
        states: States (B, L, D) of the first block's input and every block's output. Poolings of one layer need only
            the last, and "cls" only the states (B, 1, D) of first tokens.
        mask: (B, L) 1 for real tokens, special tokens included. For "mask" and "last_mask", the result of
            `mask_places`, and for "text", that of `last_copies`.
        first: Index of the first layer: 0 is the input of the first block, 1 its output.
    """
    if pooling == "cls":
        return at_least_single(states[-1][:, 0])
    if pooling in ("last", "weighted_mean", "text"):
        return pool_tokens(pooling, states, mask)
    if (pair := averaged(pooling, first)) is None:
        return masked_mean(at_least_single(states[-1]), mask)
    lower, upper = pair
    return masked_mean((at_least_single(states[upper]) + at_least_single(states[lower])) / 2, mask)


def reads_mask(pooling: str) -> bool:
    """Return whether a pooling uses the states at a template's [MASK]."""
    return pooling in ("mask", "last_mask")


def mask_places(pooling: str, tokens: Tokens, mask: int | None) -> Tensor:
    """Return (B, L) with 1 at the [MASK]s of the template, for "last_mask" only at each row's last [MASK].

    If template and sentence were tokenized together, [MASK]s of the sentence count too.

    Args:
        pooling: "mask" or "last_mask".
        tokens: Rows with a template.
        mask: ID of [MASK].
    """
    text = torch.zeros_like(tokens.ids) if tokens.text is None else tokens.text
    places = (tokens.ids == mask) & (text == 0)
    if pooling == "last_mask":
        places = places & (places.flip(1).cumsum(1).flip(1) == 1)
    return places.long()


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the (B, D) mean of (B, L, D) over the positions with `mask` (B, L) 1."""
    weights = mask.unsqueeze(-1).expand(states.shape).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def pool_tokens(pooling: str, states: Sequence[Tensor], mask: Tensor, first: int = 0) -> Tensor:
    """Return the pooled states (B, D) of rows with padding on either side, in single or double precision.

    Args:
        pooling: "last" and "cls" are the last and the first real token of the last layer. "mean" and "text" average its
            real tokens. "weighted_mean" gives the t-th real token the weight t. "last2" and "first_last" average real
            tokens over two layers, as in `pool`.
        states: States (B, L, D). Poolings of one layer need only the last.
        mask: (B, L) 1 for real tokens, at least one in each row. For "text", the result of `last_copies`.
        first: Index of the first layer in "first_last".
    """
    pair = averaged(pooling, first)
    pooled = at_least_single(states[-1] if pair is None else (states[pair[0]] + states[pair[1]]) / 2)
    if pooling in ("last", "cls"):
        places = last_places(mask) if pooling == "last" else mask.argmax(dim=1)
        return pooled[torch.arange(len(pooled), device=pooled.device), places]
    weights = mask.cumsum(dim=1) * mask if pooling == "weighted_mean" else mask
    shares = (weights / weights.sum(dim=1, keepdim=True)).to(pooled.dtype).unsqueeze(-1)
    # States at padding can be infinite, and 0 · ∞ is NaN.
    return (shares * pooled.masked_fill(shares == 0, 0)).sum(dim=1)


def last_copies(tokens: Tokens) -> Tensor:
    """Return (B, L) with 1 at the sentence's last copy in the template, or at all tokens of an empty sentence."""
    assert tokens.text is not None
    backwards = tokens.text.flip(1)
    passed = ((backwards == 0) & (backwards.cumsum(dim=1) > 0)).cumsum(dim=1)
    found = (backwards * (passed == 0)).flip(1)
    return torch.where(found.any(dim=1, keepdim=True), found, tokens.mask)


def last_places(mask: Tensor) -> Tensor:
    """Return the index (B,) of the last 1 in each row of `mask` (B, L)."""
    return mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
