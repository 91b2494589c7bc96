"""InfoNCE with in-batch, hard and queued negatives: the loss of SimCSE, IFCL, DCLR and ArcCSE."""

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
    """Select each anchor's positive among the positives of the batch, hard negatives and queue entries.

    ℓᵢ = −log( e^{s(hᵢ,h⁺ᵢ)/τ} / ( Σⱼ wᵢⱼ e^{s(hᵢ,h⁺ⱼ)/τ} + Σⱼ e^{s(hᵢ,h⁻ⱼ)/τ + ω·[i=j]} + Σₘ pₘ e^{s(hᵢ,Hₘ)/τ} ) ),
    with s the cosine, h⁻ hard negatives and H the queue entries weighted by p. The result is the mean over i, computed
    as the cross-entropy of the logits [s(h,h⁺)/τ + log w | s(h,h⁻)/τ + ω·I | s(h,H)/τ + log p], in single precision or
    higher. w is 1, except for false negatives: wᵢⱼ is 0 for j ≠ i if s(rᵢ,r⁺ⱼ) exceeds φ, with r the view `reference`
    and r⁺ the view `reference_positive`, or r if the recipe has no such view. With an angular margin m, cos(θ + m)
    replaces s(hᵢ,h⁺ᵢ) = cos θ in both places. Beyond θ = π − m, where cos(θ + m) would rise again, cos θ + cos m − 1
    replaces it.

    Shapes: anchor, positive, hard (N, D); r and r⁺ (N, D'), without gradient; negatives (K, D) and (K,), K may be 0;
    result a scalar.

    Source: SimCSE (Gao et al. 2021, `SimCSE/models.py`, cl_forward: one direction, negatives from the second view
    only); IFCL (Xiao et al. 2023, eq. 6 with a queue, eq. 7 without: `queue = false` in the recipe); DCLR (Zhou et al.
    2022), with r, r⁺ and the queue `noise` (methods/dclr.md); ArcCSE (Zhang et al. 2022), with `angular_margin`
    (methods/arccse.md); CoT-BERT (Zhang et al. 2024), with `positive_repels`, which adds Σⱼ e^{s(h⁺ᵢ,h⁻ⱼ)/τ + ω·[i=j]}
    to the sum (methods/cot_bert.md).
    Doubtful: IFCL's Algorithm 1 and DCLR's code multiply the logit by the weight, IFCL's eq. 6 the exponential
    (`weight_on`, A13). DCLR's code scores every cell separately (`form`). IFCL's eq. 9 sums over the batch; `reduction`
    switches from the usual mean to the sum (A9). MoCoSE's eq. 3 has only queue entries as negatives, its code the batch
    as well (`in_batch`, methods/mocose.md M2).

    Args:
        temperature: Divisor τ of the cosines. Small values put more weight on the hardest negatives.
        angular_margin: Margin m in degrees, added to the angle between anchor and positive. Default: no margin.

    Examples:
        >>> import torch
        >>> from registry.losses.info_nce import InfoNCE
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> round(InfoNCE(temperature=1.0)(views, views, Negatives.none(views)).item(), 4)
        0.5514
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
            margin, own = math.radians(self.angular_margin), cosines.diagonal()
            squares = 1 - own.square()
            apart = squares > torch.finfo(own.dtype).eps  # at θ = 0 the sine has no gradient, and is a constant
            sines = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)
            turned = own * math.cos(margin) - sines * math.sin(margin)
            turned = torch.where(own > -math.cos(margin), turned, own + math.cos(margin) - 1)
            cosines = cosines.diagonal_scatter(turned)
        return cosines / self.temperature
