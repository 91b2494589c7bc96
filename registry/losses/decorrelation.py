"""Decorrelation: each dimension of one view correlates only with the same dimension of the other view."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.tokens import at_least_single
from registry.types import Loss, Sentences

EPSILON = 1e-5
"""Added to each variance, as torch's batch normalization does."""


@LOSSES.register("decorrelation")
class Decorrelation(Loss):
    """Move the cross-correlation of the two views' dimensions towards the identity matrix.

    ℓ = Σₖ (Cₖₖ − 1)² + λ·Σₖ Σₗ≠ₖ Cₖₗ²,  Cₖₗ = (1/N)·Σᵢ ẑᵢₖ ẑ⁺ᵢₗ,
    with ẑ and ẑ⁺ the two views' embeddings, each dimension with mean 0 and variance 1 over the N rows of the batch on
    all devices (torch's batch normalization without scale and shift: 10⁻⁵ is added to the biased variance). The sum has
    D² cells, so its scale depends on the width of the embeddings. The loss has no negatives.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: Barlow Twins (Zbontar et al. 2021) in the form of SCD (Klein and Nabi 2022, `scd/models.py`, cl_forward,
    methods/scd.md), which weights it by 0.005225.

    Args:
        off_diagonal: Weight λ of pairs of different dimensions.

    Examples:
        >>> import torch
        >>> from registry.losses.decorrelation import Decorrelation
        >>> views = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> round(Decorrelation(off_diagonal=0.012)(views, views.flip(1)).item(), 3)
        2.024
    """

    def __init__(self, off_diagonal: Annotated[float, Field(ge=0), Tune(1e-3, 0.1, log=True)] = 0.012) -> None:
        super().__init__()
        self.off_diagonal = off_diagonal

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        correlation = cross_correlation(anchor, positive)
        same = correlation.diagonal()
        different = correlation - same.diag()
        return (same - 1).square().sum() + self.off_diagonal * different.square().sum()


def standardized(vectors: Tensor) -> Tensor:
    """Return (N, D) vectors with mean 0 and variance 1 per dimension. A constant dimension becomes 0."""
    exact = at_least_single(vectors)
    centered = exact - exact.mean(0)
    return centered / (centered.square().mean(0) + EPSILON).sqrt()


def cross_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Return C (D, D), with C_kl the correlation of dimension k of `left` (N, D) with dimension l of `right` (N, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return standardized(left).T @ standardized(right) / len(left)
