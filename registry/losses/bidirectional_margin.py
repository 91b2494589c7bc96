"""SNCSE's second loss: a sentence's negation is slightly less similar to it than its positive."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.errors import CseError
from registry.losses.contrast import cosine_rows
from registry.types import Loss, Sentences


@LOSSES.register("bidirectional_margin")
class BidirectionalMargin(Loss):
    """Keep the similarity of a soft negative within a band below that of the positive.

    ℓᵢ = max(0, Dᵢ + α) + max(0, −Dᵢ − β),  Dᵢ = s(zᵢ, z⁻ᵢ) − s(zᵢ, z⁺ᵢ),
    with s the cosine and z⁻ the soft negative. The loss is 0 while −β ≤ D ≤ −α. The result is the mean over i. All
    three embeddings receive gradient.

    Shapes: anchor, positive, soft_negative (N, D) → a scalar.

    Source: SNCSE (Wang et al. 2022) and its code. Settled in methods/sncse.md: no temperature (SN3), gradient (SN4).

    Args:
        alpha: Smallest difference of the two similarities.
        beta: Largest difference of the two similarities.

    Raises:
        CseError: If α exceeds β.

    Examples:
        >>> import torch
        >>> from registry.losses.bidirectional_margin import BidirectionalMargin
        >>> views = torch.eye(3)
        >>> round(BidirectionalMargin(alpha=0.1, beta=0.3)(views, views, views.roll(1, dims=0)).item(), 4)
        0.7
    """

    def __init__(
        self,
        alpha: Annotated[float, Field(ge=0, le=2), Tune(0.0, 0.3)] = 0.1,
        beta: Annotated[float, Field(ge=0, le=2), Tune(0.1, 0.6)] = 0.3,
    ) -> None:
        super().__init__()
        if alpha > beta:
            raise CseError(
                f"bidirectional_margin: alpha = {alpha} exceeds beta = {beta}",
                "set alpha to at most beta",
                code="losses.alpha_exceeds_beta",
            )
        self.alpha, self.beta = alpha, beta

    def forward(self, anchor: Sentences, positive: Sentences, soft_negative: Sentences) -> Tensor:
        """Return the loss of the batch."""
        difference = cosine_rows(anchor, soft_negative) - cosine_rows(anchor, positive)
        return (torch.relu(difference + self.alpha) + torch.relu(-difference - self.beta)).mean()
