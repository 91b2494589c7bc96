"""CoSENT (Su 2022): pairs of sentences in the order of their labels."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor, cat, inf

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_rows
from registry.types import Labels, Loss, Sentences


@LOSSES.register("cosent")
class CoSENT(Loss):
    """Rank pairs of sentences by their labels, such as graded similarities, or 1 and 0.

    ℓ = log( 1 + Σ_{yᵢ < yⱼ} e^{(s(hᵢ,h⁺ᵢ) − s(hⱼ,h⁺ⱼ))/τ} ),
    with s the cosine and yᵢ the label of the pair (i, i⁺). Only the order of the labels matters.

    Shapes: anchor, positive (N, D); label (N,), a column of the data; result a scalar.

    Source: Su 2022 (kexue.fm/archives/8847, bojone/CoSENT) with 1/τ = 20 (methods/cosent.md). sentence-transformers'
    `CoSENTLoss` is the same.

    Args:
        temperature: Divisor τ of the cosines.
        column: Column of the data with the labels.

    Examples:
        >>> import torch
        >>> from registry.losses.cosent import CoSENT
        >>> anchor, positive = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
        >>> round(CoSENT(temperature=1.0)(anchor, positive, torch.tensor([5.0, 0.0])).item(), 4)
        0.3133
        >>> round(CoSENT(temperature=1.0)(anchor, positive, torch.tensor([0.0, 5.0])).item(), 4)
        1.3133
    """

    def __init__(
        self, temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05, column: str = "score"
    ) -> None:
        super().__init__()
        self.temperature, self.column = temperature, column

    def similarity(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return (N,) similarities of each pair."""
        return cosine_rows(anchor, positive)

    def forward(self, anchor: Sentences, positive: Sentences, label: Labels) -> Tensor:
        """Return the loss of the batch."""
        scores = self.similarity(anchor, positive) / self.temperature
        differences = scores[:, None] - scores[None, :]
        ordered = differences.masked_fill(label[:, None] >= label[None, :], -inf)
        return cat([scores.new_zeros(1), ordered.flatten()]).logsumexp(dim=0)
