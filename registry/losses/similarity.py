"""The cosine of two views: minimised, it pushes them apart."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_rows
from registry.types import Loss, Pooled


@LOSSES.register("similarity")
class Similarity(Loss):
    """Make the two views of a sentence less similar; with a negative weight in the recipe, more.

    ℓ = (1/N)·Σᵢ s(hᵢ,h⁺ᵢ)/τ, with s the cosine and h, h⁺ the vectors before the training heads. By itself it turns each
    pair into opposites: another loss has to hold them together.

    Shapes: anchor, positive (N, D′) before the heads; result a scalar.

    Source: SCD (Klein and Nabi 2022, `scd/models.py`, cl_forward, methods/scd.md), its self-contrast.

    Args:
        temperature: τ, divides the cosines.
    """

    def __init__(self, temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Pooled, positive: Pooled) -> Tensor:
        """Return the loss of the batch."""
        return cosine_rows(anchor, positive).mean() / self.temperature
