"""InfoNCE over in-batch, hard and queued negatives: SimCSE's loss, IFCL's two, DCLR's and ArcCSE's."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import InBatchContrast


@LOSSES.register("info_nce")
class InfoNCE(InBatchContrast):
    """Pick each anchor's positive among the positives of the batch and the queue's entries.

    ℓᵢ = −log( e^{s(hᵢ,h⁺ᵢ)/τ} / ( Σⱼ wᵢⱼ e^{s(hᵢ,h⁺ⱼ)/τ} + Σⱼ e^{s(hᵢ,h⁻ⱼ)/τ + ω·[i=j]} + Σₘ pₘ e^{s(hᵢ,Hₘ)/τ} ) ),
    with s the cosine, h⁻ hard negatives and H the queue's entries weighted by p; the mean over i. Computed as the
    cross-entropy of the logits [s(h,h⁺)/τ + log w | s(h,h⁻)/τ + ω·I | s(h,H)/τ + log p], in at least single precision.
    w is 1, but 0 for a false negative: a sentence j ≠ i that the view `reference` finds nearer to i than φ.
    With an angular margin m, s(hᵢ,h⁺ᵢ) = cos θ is cos(θ + m) in both places; beyond θ = π − m, where that would rise
    again, it goes on as cos θ + cos m − 1.

    Shapes: anchor, positive, hard (N, D); reference (N, D'), without gradient; negatives (K, D) and (K,), K may be 0;
    result a scalar.

    Source: SimCSE (Gao et al. 2021, `SimCSE/models.py`, cl_forward: one direction, negatives from the second view
    only); IFCL (Xiao et al. 2023, eq. 6 with a queue, eq. 7 without: `queue = false` in the recipe); DCLR (Zhou et al.
    2022), with `reference` and the queue `noise` (methods/dclr.md); ArcCSE (Zhang et al. 2022), with `angular_margin`
    (methods/arccse.md); CoT-BERT (Zhang et al. 2024), with `positive_repels`, which adds Σⱼ e^{s(h⁺ᵢ,h⁻ⱼ)/τ + ω·[i=j]}
    to the sum (methods/cot_bert.md).
    Doubtful: IFCL's Algorithm 1 and DCLR's code multiply the logit by the weight, IFCL's eq. 6 the exponential
    (`weight_on`, A13). DCLR's code scores every cell by itself (`form`). IFCL's eq. 9 sums over the batch; `reduction`
    switches from the usual mean to it (A9). MoCoSE's eq. 3 has the queue alone for negatives, its code the batch as
    well (`in_batch`, methods/mocose.md M2).

    Args:
        temperature: Divides the cosines; small values stress the hardest negatives.
        angular_margin: m in degrees, added to the angle between anchor and positive; left out is none.
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        angular_margin: Annotated[float, Field(gt=0, lt=180), Tune(1.0, 30.0)] | None = None,
        **contrast: Any,
    ) -> None:
        super().__init__(**contrast)
        self.temperature, self.angular_margin = temperature, angular_margin

    def logits(self, cosines: Tensor) -> Tensor:
        """Return s/τ, with the positives' angles enlarged."""
        if self.angular_margin is not None:
            turned = _turned(cosines.diagonal(), math.radians(self.angular_margin))
            cosines = cosines.diagonal_scatter(turned)
        return cosines / self.temperature


def _turned(cosines: Tensor, margin: float) -> Tensor:
    """Return cos(θ + margin) of cos θ. At θ = 0, where the sine has no gradient, it counts as a constant."""
    squares = 1 - cosines.square()
    apart = squares > torch.finfo(cosines.dtype).eps
    sines = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)
    turned = cosines * math.cos(margin) - sines * math.sin(margin)
    return torch.where(cosines > -math.cos(margin), turned, cosines + math.cos(margin) - 1)
