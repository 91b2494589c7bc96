"""Alignment: how far apart the two views of a sentence lie on the unit sphere."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import unit
from registry.types import Loss, Sentences


@LOSSES.register("alignment")
class Alignment(Loss):
    """Bring the views of a sentence together: the mean over i of ‖aᵢ − bᵢ‖^α, a and b the vectors at unit length.

    For α = 2 that is 2(1 − s(aᵢ,bᵢ)) with s the cosine; over the D dimensions it is divided by D, and so the mean
    squared error of the unit vectors.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: Wang and Isola 2020 (alignment, α = 2); InforMin-CL (Chen et al. 2022; `informin-cl/models.py`), whose two
    terms MSE(a, b) + MSE(b, a) are this one, over dimensions, with weight 2 (methods/informin_cl.md IM1). Doubtful:
    whether its weight is one of a mean or of a sum over dimensions (IM2, `over`).

    Args:
        power: α.
        over: What the mean is over: "sentences", or their "dimensions" too.
    """

    def __init__(
        self,
        power: Annotated[float, Field(ge=1), Tune(1.0, 4.0)] = 2.0,
        over: Literal["sentences", "dimensions"] = "sentences",
    ) -> None:
        super().__init__()
        self.power, self.over = power, over

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        apart: Tensor = torch.linalg.vector_norm(unit(anchor) - unit(positive), dim=1).pow(self.power).mean()
        return apart / anchor.shape[1] if self.over == "dimensions" else apart
