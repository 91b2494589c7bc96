"""InfoNCE over in-batch, hard and queued negatives: SimCSE's loss, and both of IFCL's contrastive ones."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.cosine import cosine_matrix
from registry.types import Loss, Negatives, Sentences


@LOSSES.register("info_nce")
class InfoNCE(Loss):
    """Pick each anchor's positive among the positives of the batch and the queue's entries.

    ℓᵢ = −log( e^{s(hᵢ,h⁺ᵢ)/τ} / ( Σⱼ e^{s(hᵢ,h⁺ⱼ)/τ} + Σⱼ e^{s(hᵢ,h⁻ⱼ)/τ + ω·[i=j]} + Σₘ pₘ e^{s(hᵢ,Hₘ)/τ} ) ),
    with s the cosine, h⁻ hard negatives and H the queue's entries weighted by p; the mean over i. Computed as the
    cross-entropy of the logits [s(h,h⁺)/τ | s(h,h⁻)/τ + ω·I | s(h,H)/τ + log p], in at least single precision.

    Shapes: anchor, positive, hard (N, D); negatives (K, D) and (K,), K may be 0; result a scalar.

    Source: SimCSE (Gao et al. 2021, `SimCSE/models.py`, cl_forward: one direction, negatives from the second view
    only); IFCL (Xiao et al. 2023, eq. 6 with a queue, eq. 7 without: `queue = false` in the recipe).
    Doubtful: IFCL's Algorithm 1 multiplies the cosine by p, eq. 6 the exponential; eq. 6 is followed (A13). Eq. 9 sums
    over the batch; `reduction` switches from the usual mean to it (A9).

    Args:
        temperature: Divides the cosines; small values stress the hardest negatives.
        hard_weight: Logarithm of the weight of an anchor's own hard negative; SimCSE's `hard_negative_weight`.
        reduction: Over the anchors of the batch.
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        hard_weight: float = 0.0,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.hard_weight = hard_weight
        self.reduction = reduction

    def forward(
        self, anchor: Sentences, positive: Sentences, negatives: Negatives, hard: Sentences | None = None
    ) -> Tensor:
        """Return the loss of the batch."""
        columns = [self._logits(anchor, positive)]
        if hard is not None:
            own = torch.eye(len(anchor), dtype=columns[0].dtype, device=anchor.device)
            columns.append(self._logits(anchor, hard) + self.hard_weight * own)
        columns.append(self._logits(anchor, negatives.vectors.to(columns[0].dtype)) + negatives.log_weights)
        labels = torch.arange(len(anchor), device=anchor.device)
        return F.cross_entropy(torch.cat(columns, dim=1), labels, reduction=self.reduction)

    def _logits(self, left: Tensor, right: Tensor) -> Tensor:
        return cosine_matrix(left, right) / self.temperature
