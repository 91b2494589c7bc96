"""SimCSE++'s contrast over dimensions instead of sentences."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.decorrelation import cross_correlation
from registry.types import Loss, Sentences


@LOSSES.register("dimension_contrast")
class DimensionContrast(Loss):
    """Select for each dimension of one view the same dimension among all dimensions of the other view.

    ℓ = −(1/D)·Σₖ log( e^{Cₖₖ/T} / Σₗ e^{Cₖₗ/T} ),
    with C as in `decorrelation`: the (D, D) cross-correlation of the views' dimensions over the N rows of the batch on
    all devices.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: SimCSE++ (Xu et al. 2023, DCL; `simcse/models_vicreg.py`, methods/simcse_pp.md). Doubtful: T is 5 in the
    names of the authors' scripts and 10 in one of their files (SP3, `temperature`); the authors divide by the rows of
    one device (SP5).

    Args:
        temperature: Divisor T of the correlations.

    Examples:
        >>> import torch
        >>> from registry.losses.dimension_contrast import DimensionContrast
        >>> views = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> round(DimensionContrast(temperature=1.0)(views, views).item(), 3)
        0.313
    """

    def __init__(self, temperature: Annotated[float, Field(gt=0), Tune(0.1, 20.0, log=True)] = 5.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        logits = cross_correlation(anchor, positive) / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
