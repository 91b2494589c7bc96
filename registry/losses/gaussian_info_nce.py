"""GCSE's InfoNCE: a hard negative counts less, the closer its cosine is to that of a frozen scorer."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix, cosine_rows
from registry.types import Loss, Sentences


@LOSSES.register("gaussian_info_nce")
class GaussianInfoNCE(Loss):
    """Select each anchor's positive, where its own hard negative is decayed if a scorer finds it at least as similar.

    ℓᵢ = −log( e^{s(hᵢ,h⁺ᵢ)/τ} / Σⱼ ( e^{s(hᵢ,h⁺ⱼ)/τ} + e^{s(hᵢ,h⁻ⱼ)/τ + wᵢ·[i=j]} ) ),
    wᵢ = −zᵢ·exp(−(zᵢ − z⁰ᵢ)² / (2α²)) if zᵢ ≤ z⁰ᵢ, else 0,
    where zᵢ = s(hᵢ,h⁻ᵢ)/τ is the logit of the hard negative, z⁰ᵢ = s(rᵢ,r⁻ᵢ)/τ that of a frozen scorer, and s the
    cosine. w has no gradient. At the scorer's own logit the hard negative has the logit 0, that of a right angle. One
    that the student finds more similar than the scorer does keeps its logit.

    Shapes: anchor, positive, hard (N, D); reference, reference_hard (N, D′), without gradient; result a scalar.

    Source: GCSE (Lai et al. 2025, section 3.3) and its code (aleversn/GCSE @99e2e18, `main/models/gcse.py:117-148`).
    Doubtful and settled in methods/gcse.md: α is compared with logits and not with cosines (GC1).

    Args:
        temperature: Divisor τ of the cosines.
        width: Width α of the Gaussian, in logits.

    Examples:
        >>> import torch
        >>> from registry.losses.gaussian_info_nce import GaussianInfoNCE
        >>> views = torch.eye(3)
        >>> loss = GaussianInfoNCE(temperature=1.0)
        >>> round(loss(views, views, hard=views, reference=views, reference_hard=views).item(), 4)
        1.0436
    """

    steering: frozenset[str] = frozenset({"reference", "reference_hard"})

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        width: Annotated[float, Field(gt=0), Tune(0.05, 5.0, log=True)] = 0.17,
    ) -> None:
        super().__init__()
        self.temperature, self.width = temperature, width

    def forward(
        self, anchor: Sentences, positive: Sentences, hard: Sentences, reference: Sentences, reference_hard: Sentences
    ) -> Tensor:
        """Return the loss of the batch."""
        hardest = cosine_matrix(anchor, hard) / self.temperature
        scored = cosine_rows(reference.detach(), reference_hard.detach()) / self.temperature
        # By the same sum as `scored`: equal vectors, as in the first step, are equal in every build of torch.
        own = cosine_rows(anchor.detach(), hard.detach()) / self.temperature
        decayed = -own * torch.exp(-((own - scored) ** 2) / (2 * self.width**2))
        hardest = hardest + torch.where(own > scored, 0.0, decayed).diag()
        logits = torch.cat([cosine_matrix(anchor, positive) / self.temperature, hardest], dim=1)
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
