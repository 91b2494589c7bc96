"""Shared parts of losses over the dimensions of sentence embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from registry.tokens import at_least_single

EPSILON = 1e-5
"""Added to each variance, as torch's batch normalization does."""


def standardized(vectors: Tensor) -> Tensor:
    """Return (N, D) vectors with mean 0 and variance 1 per dimension. A constant dimension becomes 0."""
    exact = at_least_single(vectors)
    centered = exact - exact.mean(0)
    return centered / (centered.square().mean(0) + EPSILON).sqrt()


def cross_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Return C (D, D), with C_kl the correlation of dimension k of `left` (N, D) with dimension l of `right` (N, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return standardized(left).T @ standardized(right) / len(left)
