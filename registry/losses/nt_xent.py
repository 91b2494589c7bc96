"""NT-Xent: the sentences of both views are anchors and negatives."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.types import Loss, Negatives, Sentences


class SymmetricContrast(Loss):
    """Base class of losses in which the sentences of both sides of a pair are anchors.

    Args:
        temperature: Divisor τ of the cosines.
        reduction: "sum_of_means" adds the means over each view's N anchors. "mean" and "sum" reduce all 2N anchors.
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.1,
        reduction: Literal["sum_of_means", "mean", "sum"] = "sum_of_means",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.reduction = reduction

    def contrast(self, anchor: Tensor, positive: Tensor, negatives: Negatives) -> Tensor:
        """Return the loss of pairs (N, D) and (N, D)."""
        both = torch.cat([anchor, positive])
        cosines = cosine_matrix(both, both)
        itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
        batch = (cosines / self.temperature).masked_fill(itself, -torch.inf)
        queue = cosine_matrix(both, negatives.vectors.to(cosines.dtype)) / self.temperature + negatives.log_weights
        labels = torch.arange(len(both), device=both.device).roll(len(anchor))
        logits = torch.cat([batch, queue], dim=1)
        if self.reduction == "sum_of_means":
            return 2 * F.cross_entropy(logits, labels)
        return F.cross_entropy(logits, labels, reduction=self.reduction)


@LOSSES.register("nt_xent")
class NTXent(SymmetricContrast):
    """Select each sentence's other view among both views of the batch and the queue entries.

    ℓᵢ = −log( e^{s(zᵢ,zᵢ')/τ} / ( Σⱼ≠ᵢ e^{s(zᵢ,zⱼ)/τ} + Σₘ pₘ e^{s(zᵢ,Hₘ)/τ} ) ),
    with z the 2N stacked embeddings of both views, i' the row of i's other view, s the cosine and H the queue entries
    weighted by p. Row i has N columns of the other view and N − 1 columns of the same view.

    Shapes: anchor, positive (N, D); negatives (K, D) and (K,), K may be 0; result a scalar.

    Source: SimCLR (Chen et al. 2020, eq. 1); ConSERT (Yan et al. 2021, `AdvCLSoftmaxLoss.py`, methods/consert.md).
    Doubtful: ConSERT adds the means of the two directions, SimCLR averages over all 2N rows, which is half as much
    (`reduction`).

    Examples:
        >>> import torch
        >>> from registry.losses.nt_xent import NTXent
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> round(NTXent(temperature=1.0, reduction="mean")(views, views, Negatives.none(views)).item(), 4)
        0.9048
    """

    def forward(self, anchor: Sentences, positive: Sentences, negatives: Negatives) -> Tensor:
        """Return the loss of the batch."""
        return self.contrast(anchor, positive, negatives)
