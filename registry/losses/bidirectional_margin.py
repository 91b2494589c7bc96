"""SNCSE's second loss: a sentence's negation stays a little less similar than its positive."""

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
    """Hold the similarity of a soft negative within a band below that of the positive.

    ℓᵢ = max(0, Dᵢ + α) + max(0, −Dᵢ − β),  Dᵢ = s(zᵢ, z⁻ᵢ) − s(zᵢ, z⁺ᵢ), with s the cosine and z⁻ the soft negative:
    nothing is lost while −β ≤ D ≤ −α. The mean over i. All three vectors get gradient.

    Shapes: anchor, positive, soft_negative (N, D) → a scalar.

    Source: SNCSE (Wang et al. 2022) and its code. Settled in methods/sncse.md: no temperature (SN3), gradient (SN4).

    Args:
        alpha: Least distance of the two similarities.
        beta: Largest one.

    Raises:
        CseError: α exceeds β.
    """

    def __init__(
        self,
        alpha: Annotated[float, Field(ge=0, le=2), Tune(0.0, 0.3)] = 0.1,
        beta: Annotated[float, Field(ge=0, le=2), Tune(0.1, 0.6)] = 0.3,
    ) -> None:
        super().__init__()
        if alpha > beta:
            raise CseError(
                f"bidirectional_margin: alpha = {alpha} exceeds beta = {beta}, and no similarity lies between",
                "give the smaller one as alpha",
            )
        self.alpha, self.beta = alpha, beta

    def forward(self, anchor: Sentences, positive: Sentences, soft_negative: Sentences) -> Tensor:
        """Return the loss of the batch."""
        difference = cosine_rows(anchor, soft_negative) - cosine_rows(anchor, positive)
        return (torch.relu(difference + self.alpha) + torch.relu(-difference - self.beta)).mean()
