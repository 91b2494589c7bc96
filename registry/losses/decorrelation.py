"""Decorrelation: each dimension of one view goes with the same dimension of the other, and with no other."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.correlation import cross_correlation
from registry.types import Loss, Sentences


@LOSSES.register("decorrelation")
class Decorrelation(Loss):
    """Bring the cross-correlation of the two views' dimensions near the identity.

    ℓ = Σₖ (Cₖₖ − 1)² + λ·Σₖ Σₗ≠ₖ Cₖₗ²,  Cₖₗ = (1/N)·Σᵢ ẑᵢₖ ẑ⁺ᵢₗ,
    with ẑ and ẑ⁺ the two views' vectors, each dimension with mean 0 and variance 1 over the N rows of the batch on all
    devices (torch's batch normalisation without scale and shift: 10⁻⁵ is added to the biased variance). It is a sum
    over D² cells, so that its weight depends on the width of what it is given. There are no negatives.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: Barlow Twins (Zbontar et al. 2021) in the form of SCD (Klein and Nabi 2022, `scd/models.py`, cl_forward,
    methods/scd.md), which weighs it by 0.005225.

    Args:
        off_diagonal: λ, the weight of different dimensions.
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
