"""InfoNCE over in-batch, hard and queued negatives: SimCSE's loss, both of IFCL's contrastive ones, and DCLR's."""

from __future__ import annotations

from typing import Annotated, Any

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

    Shapes: anchor, positive, hard (N, D); reference (N, D'), without gradient; negatives (K, D) and (K,), K may be 0;
    result a scalar.

    Source: SimCSE (Gao et al. 2021, `SimCSE/models.py`, cl_forward: one direction, negatives from the second view
    only); IFCL (Xiao et al. 2023, eq. 6 with a queue, eq. 7 without: `queue = false` in the recipe); DCLR (Zhou et al.
    2022), with `reference` and the queue `noise` (methods/dclr.md).
    Doubtful: IFCL's Algorithm 1 and DCLR's code multiply the logit by the weight, IFCL's eq. 6 the exponential
    (`weight_on`, A13). DCLR's code scores every cell by itself (`form`). IFCL's eq. 9 sums over the batch; `reduction`
    switches from the usual mean to it (A9). MoCoSE's eq. 3 has the queue alone for negatives, its code the batch as
    well (`in_batch`, methods/mocose.md M2).

    Args:
        temperature: Divides the cosines; small values stress the hardest negatives.
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        **contrast: Any,
    ) -> None:
        super().__init__(**contrast)
        self.temperature = temperature

    def logits(self, cosines: Tensor) -> Tensor:
        """Return s/τ."""
        return cosines / self.temperature
