"""RankCSE's ranking consistency: both views rank the sentences of the batch in the same way."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.types import Loss, Sentences


@LOSSES.register("ranking_consistency")
class RankingConsistency(Loss):
    """Align the similarities of a sentence to the batch between the two views.

    ℓ = mean over i of JS(pᵢ, qᵢ) = KL(pᵢ ‖ mᵢ)/2 + KL(qᵢ ‖ mᵢ)/2,
    with mᵢ = (pᵢ + qᵢ)/2, pᵢ the softmax over j of s(hᵢ,h⁺ⱼ)/τ, qᵢ that of s(h⁺ᵢ,hⱼ)/τ and s the cosine. j runs over
    the whole batch, including i.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: RankCSE (Liu et al. 2023) in a community implementation (perceptiveshawty/RankCSE, `rankcse/models.py`,
    methods/rankcse.md). Doubtful: that code has 10⁻⁷ as the lower bound of log m, which every log-probability is below,
    so that the term is minus the mean entropy of p and q (RK1, `divergence`).

    Args:
        temperature: Divisor τ of the cosines.
        divergence: "js", or "released" with 10⁻⁷ in place of log m.

    Examples:
        >>> import torch
        >>> from registry.losses.ranking_consistency import RankingConsistency
        >>> views = torch.eye(3)
        >>> round(RankingConsistency(temperature=1.0)(views, views.roll(1, dims=0)).item(), 4)
        0.0874
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        divergence: Literal["js", "released"] = "js",
    ) -> None:
        super().__init__()
        self.temperature, self.divergence = temperature, divergence

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        scores = cosine_matrix(anchor, positive) / self.temperature
        log_p, log_q = scores.log_softmax(dim=1), scores.T.log_softmax(dim=1)
        log_m = torch.logaddexp(log_p, log_q) - math.log(2)
        if self.divergence == "released":
            log_m = torch.full_like(log_m, 1e-7)
        both = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)
        return both.sum(dim=1).mean() / 2
