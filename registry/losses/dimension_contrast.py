"""Contrast over dimensions instead of sentences, as in SimCSE++."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.correlation import cross_correlation
from registry.types import Loss, Sentences


@LOSSES.register("dimension_contrast")
class DimensionContrast(Loss):
    """Pick for each dimension of one view the same dimension among all of the other view.

    ℓ = −(1/D)·Σₖ log( e^{Cₖₖ/T} / Σₗ e^{Cₖₗ/T} ),  C as in `decorrelation`: the (D, D) cross-correlation of the views'
    dimensions over the N rows of the batch on all devices.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: SimCSE++ (Xu et al. 2023, DCL; `simcse/models_vicreg.py`, methods/simcse_pp.md). Doubtful: T is 5 in the
    names of the authors' scripts and 10 in a file of theirs (SP3, `temperature`); they divide by the rows of a device
    (SP5).

    Args:
        temperature: T, divides the correlations.
    """

    def __init__(self, temperature: Annotated[float, Field(gt=0), Tune(0.1, 20.0, log=True)] = 5.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        logits = cross_correlation(anchor, positive) / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
