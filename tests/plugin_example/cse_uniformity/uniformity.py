"""Uniformity (Wang and Isola 2020): how evenly the embeddings cover the sphere."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.types import Loss, Sentences


@LOSSES.register("uniformity")
class Uniformity(Loss):
    """Spread the embeddings over the unit sphere.

    log mean exp(−t ‖xᵢ − xⱼ‖²) over all pairs i < j of unit vectors.

    Args:
        sharpness: t: how much close pairs weigh.
    """

    def __init__(self, sharpness: Annotated[float, Field(gt=0), Tune(0.5, 4.0)] = 2.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def forward(self, anchor: Sentences) -> Tensor:
        """Return the loss of the batch."""
        return torch.pdist(F.normalize(anchor, dim=-1)).pow(2).mul(-self.sharpness).exp().mean().log()
