"""What losses over the dimensions of sentence vectors share. Registers nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from registry.tokens import at_least_single

EPSILON = 1e-5
"""Added to each variance, as torch's batch normalisation does."""


def standardised(vectors: Tensor) -> Tensor:
    """Return (N, D) with mean 0 and variance 1 in each dimension, of N rows; a constant dimension becomes 0."""
    exact = at_least_single(vectors)
    centred = exact - exact.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()


def cross_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Return (D, D) C, C_kl the correlation of dimension k of `left` (N, D) with dimension l of `right` (N, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return standardised(left).T @ standardised(right) / len(left)
