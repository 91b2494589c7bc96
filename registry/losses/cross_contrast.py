"""TNCSE's contrast of two encoders: each copy of a sentence finds the other copy among those of a second encoder."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.types import Loss, Pooled


@LOSSES.register("cross_contrast")
class CrossContrast(Loss):
    """Select each sentence's other copy among both copies of the batch that a second encoder made.

    ℓᵢ = −log( e^{s(zᵢ,z'ᵢ₊)/τ} / Σⱼ≠ᵢ e^{s(zᵢ,z'ⱼ)/τ} ),
    where z are the 2N stacked embeddings of both copies by the first encoder and z' those by the second, i₊ is the row
    of i's other copy, and s the cosine. The same copy of the sentence, j = i, is excluded. The result is the mean over
    i. With the same views on both sides it is NT-Xent. The loss reads the embeddings before the training heads.

    Shapes: anchor, positive, other_anchor, other_positive (N, D) before the heads; result a scalar.

    Source: TNCSE (Zong et al. 2025, ICNCE) and its code (tianyuzong/TNCSE @8051805, `model_dual.py:72-99`). Only rows
    of the first encoder choose (methods/tncse.md TN4).

    Args:
        temperature: Divisor τ of the cosines.

    Examples:
        >>> import torch
        >>> from registry.losses.cross_contrast import CrossContrast
        >>> views = torch.eye(3)
        >>> round(CrossContrast(temperature=1.0)(views, views, views, views).item(), 4)
        0.9048
    """

    def __init__(self, temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Pooled, positive: Pooled, other_anchor: Pooled, other_positive: Pooled) -> Tensor:
        """Return the loss of the batch."""
        cosines = cosine_matrix(torch.cat([anchor, positive]), torch.cat([other_anchor, other_positive]))
        same = torch.eye(len(cosines), dtype=torch.bool, device=cosines.device)
        labels = torch.arange(len(cosines), device=cosines.device).roll(len(anchor))
        return F.cross_entropy((cosines / self.temperature).masked_fill(same, -torch.inf), labels)
