"""Slow, literal versions of what random augmenters draw, and batches to try them on."""

import torch
from torch import Tensor

from registry.tokens import Embedded, Tokens
from registry.types import Augmenter, Step

STEP: Step = None  # type: ignore[assignment]  # most augmenters of token vectors do not read it
SHAPES = [([1], 1), ([1, 5, 3], 4), ([10] * 6, 5)]
"""Numbers of real tokens, and the width of their vectors."""


def batch(lengths: list[int], width: int, extra: int = 0, dtype: torch.dtype = torch.float32) -> Embedded:
    """Return sentences of so many real tokens, padded to the longest and `extra` more; no vector holds a zero."""
    longest = max(lengths) + extra
    mask = torch.tensor([[1] * n + [0] * (longest - n) for n in lengths])
    ids = torch.arange(mask.numel()).view_as(mask) + 5
    positions = torch.arange(longest).repeat(len(lengths), 1)
    vectors = 1 + torch.rand(*mask.shape, width, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return Embedded(Tokens(ids * mask, mask, torch.zeros_like(ids), positions), vectors)


def cut(augmenter: Augmenter, embedded: Embedded, seed: int = 0) -> Embedded:
    """Return the embeddings behind an augmenter that draws its numbers after a seed."""
    torch.manual_seed(seed)
    return augmenter.on_embeddings(embedded, "anchor", STEP)


def drawn(noise: list[float], candidates: list[int], number: int) -> set[int]:
    """Return the `number` candidates whose random numbers are smallest."""
    return set(sorted(candidates, key=lambda place: noise[place])[:number])


def seeded(*shape: int) -> list[list[float]]:
    """Return the uniform numbers that come first after seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made: list[list[float]] = torch.rand(*shape).tolist()
        return made


def zeros(vectors: Tensor) -> Tensor:
    """Return (B, L): whether each place's vector is zero."""
    return (vectors == 0).all(-1)
