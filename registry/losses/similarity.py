"""SCD's self-contrast: the cosine of two views, which minimization moves apart."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_rows
from registry.types import Loss, Pooled


@LOSSES.register("similarity")
class Similarity(Loss):
    """Minimize the similarity of the two views of a sentence, or maximize it with a negative `weight` in the recipe.

    ℓ = (1/N)·Σᵢ s(hᵢ,h⁺ᵢ)/τ,
    with s the cosine and h, h⁺ the embeddings before the training heads. Without another loss that aligns the views, it
    turns each pair into opposites.

    Shapes: anchor, positive (N, D′) before the heads; result a scalar.

    Source: SCD (Klein and Nabi 2022, `scd/models.py`, cl_forward, methods/scd.md), its self-contrast.

    Args:
        temperature: Divisor τ of the cosines.

    Examples:
        >>> import torch
        >>> from registry.losses.similarity import Similarity
        >>> views = torch.eye(3)
        >>> round(Similarity(temperature=0.5)(views, views).item(), 4)
        2.0
    """

    def __init__(self, temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Pooled, positive: Pooled) -> Tensor:
        """Return the loss of the batch."""
        return cosine_rows(anchor, positive).mean() / self.temperature
