"""Alignment: the distance between the two views of a sentence on the unit sphere."""

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
    """Minimize the distance between the unit vectors of a sentence's two views.

    ℓ = (1/N)·Σᵢ ‖aᵢ − bᵢ‖^α,
    with a and b the embeddings of the two views at unit length. For α = 2, ‖aᵢ − bᵢ‖² = 2(1 − s(aᵢ,bᵢ)), with s the
    cosine. Divided by the D dimensions, it is the mean squared error of the unit vectors.

    Shapes: anchor, positive (N, D); result a scalar.

    Source: Wang and Isola 2020 (alignment, α = 2); InforMin-CL (Chen et al. 2022; `informin-cl/models.py`), whose two
    terms MSE(a, b) + MSE(b, a) equal this loss over dimensions with weight 2 (methods/informin_cl.md IM1). Doubtful:
    whether its weight belongs to a mean or a sum over dimensions (IM2, `over`).

    Args:
        power: Exponent α of the distance.
        over: Axes of the mean: "sentences", or "dimensions" for sentences and dimensions.

    Examples:
        >>> import torch
        >>> from registry.losses.alignment import Alignment
        >>> views = torch.eye(3)
        >>> round(Alignment()(views, views.roll(1, dims=0)).item(), 4)
        2.0
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
