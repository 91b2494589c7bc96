"""SimCSE++'s contrast, with positive pairs and negative pairs from different views."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix, cosine_rows
from registry.types import Loss, Sentences


@LOSSES.register("split_contrast")
class SplitContrast(Loss):
    """Select each sentence's own pair of views among it and the pairs of different sentences in a third view.

    ℓᵢ = −log( e^{p·s(hᵢ,h⁺ᵢ)/τ} / ( e^{p·s(hᵢ,h⁺ᵢ)/τ} + Σⱼ≠ᵢ e^{s(oᵢ,oⱼ)/τ} ) ), averaged over i,
    with s the cosine and o the third view, which also receives gradient. The third view has no dropout (`dropout = 0.0`
    of a view): the noise of dropout creates positives, but only disturbs negatives.

    Shapes: anchor, positive, undropped (N, D); result a scalar.

    Source: SimCSE++ (Xu et al. 2023, off-dropout; `simcse/models_re.py`, methods/simcse_pp.md). Doubtful: p multiplies
    the positive's logit in numerator and denominator (SP4, `positive_share`); the code hides j = i with −103 in the
    exponent, this implementation excludes it (SP2).

    Args:
        temperature: Divisor τ of the cosines.
        positive_share: Factor p of the positive's logit.

    Examples:
        >>> import torch
        >>> from registry.losses.split_contrast import SplitContrast
        >>> views = torch.eye(3)
        >>> round(SplitContrast(temperature=1.0)(views, views, views).item(), 4)
        0.5514
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        positive_share: Annotated[float, Field(gt=0), Tune(0.5, 1.0)] = 1.0,
    ) -> None:
        super().__init__()
        self.temperature, self.positive_share = temperature, positive_share

    def forward(self, anchor: Sentences, positive: Sentences, undropped: Sentences) -> Tensor:
        """Return the loss of the batch."""
        own = self.positive_share * cosine_rows(anchor, positive) / self.temperature
        itself = torch.eye(len(own), dtype=torch.bool, device=own.device)
        others = (cosine_matrix(undropped, undropped) / self.temperature).masked_fill(itself, -torch.inf)
        return (torch.cat([own.unsqueeze(1), others], dim=1).logsumexp(dim=1) - own).mean()
