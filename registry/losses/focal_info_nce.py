"""Focal-InfoNCE: InfoNCE with pairs weighted by their own similarity."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import InBatchContrast


@LOSSES.register("focal_info_nce")
class FocalInfoNCE(InBatchContrast):
    """Select each anchor's positive as `info_nce` does, with pairs weighted by their own similarity.

    ℓᵢ = −log( e^{s⁺²/τ} / ( e^{s⁺²/τ} + Σ wₖ e^{sₖ(sₖ+m)/τ} ) ),
    with s⁺ = s(hᵢ,h⁺ᵢ), s the cosine, and k over every column except the positive of i: the other sentences' positives,
    hard negatives, and queue entries (earlier sentences or noise), each with its weight w. A negative has more weight
    than in InfoNCE if s > 1 − m or s < 0. The factors s and s + m carry gradient.

    Shapes: anchor, positive, hard (N, D); reference, reference_positive (N, D'), without gradient; negatives
    (K, D) and (K,), K may be 0; result a scalar.

    Source: Focal-InfoNCE (Hou and Li 2023, eq. 2; its code agrees), methods/focal_infonce.md.
    Doubtful: the paper states τ = 0.7 for BERT and 0.5 for RoBERTa; its Table 4 sweeps 0.03 to 0.1 and reproduces its
    own results at 0.07 and 0.05, so the stated values are ten times too large (F1). Eq. 3 sums over the batch, the
    code averages (`reduction`, F7). Eq. 4 gives (2/τ)(s+m)·p for the gradient of a negative; the correct value is
    ((2s+m)/τ)·p, so that negatives move towards s = −m/2 and not below it (F8). As s⁺² is even, it moves a positive
    below 0 towards −1; `clamp` holds s⁺ at 0, where the gradient is 0. With a pre-trained encoder, s⁺ starts at about
    0.85.

    Args:
        temperature: Divisor τ of the modulated cosines: 0.07 for BERT, 0.05 for RoBERTa.
        margin: Margin m: negatives with a similarity above 1 − m get more weight.
        clamp: Whether a negative s⁺ counts as 0. Use it with random weights or strong augmentation, if positives may
            start below 0.

    Examples:
        >>> import torch
        >>> from registry.losses.focal_info_nce import FocalInfoNCE
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> round(FocalInfoNCE(temperature=1.0)(views, views, Negatives.none(views)).item(), 4)
        0.5514
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.07,
        margin: Annotated[float, Field(ge=0, le=1), Tune(0.0, 0.5)] = 0.3,
        clamp: bool = False,
        **contrast: Any,
    ) -> None:
        super().__init__(**contrast)
        self.temperature, self.margin, self.clamp = temperature, margin, clamp

    def logits(self, cosines: Tensor) -> Tensor:
        """Return s²/τ for the positive and s(s+m)/τ for all others."""
        own = torch.eye(*cosines.shape, dtype=torch.bool, device=cosines.device)
        positive = cosines.clamp(min=0) if self.clamp else cosines
        return torch.where(own, positive.square(), cosines * (cosines + self.margin)) / self.temperature
