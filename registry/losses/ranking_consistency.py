"""RankCSE's ranking consistency: both views must rank the sentences of the batch alike."""

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
    """Bring together how near the sentences of the batch are to a sentence by one view and by the other.

    Mean over i of JS(pᵢ, qᵢ) = KL(pᵢ ‖ mᵢ)/2 + KL(qᵢ ‖ mᵢ)/2 with mᵢ = (pᵢ + qᵢ)/2, pᵢ the softmax over j of
    s(hᵢ,h⁺ⱼ)/τ, qᵢ that of s(h⁺ᵢ,hⱼ)/τ and s the cosine; j runs over the whole batch, i included.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: RankCSE (Liu et al. 2023) as a community implementation has it (perceptiveshawty/RankCSE,
    `rankcse/models.py`, methods/rankcse.md). Doubtful: log m is bounded from below by 10⁻⁷ there, and the logarithm of
    a probability is never that large, so that the term is minus the mean entropy of p and q (RK1, `divergence`).

    Args:
        temperature: τ.
        divergence: "js", or "released": 10⁻⁷ in place of log m.
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
