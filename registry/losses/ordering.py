"""ArcCSE's triplets: a sentence is nearer to a version that lost little of it than to one that lost more."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_rows
from registry.types import Loss, Sentences


@LOSSES.register("ordering")
class Ordering(Loss):
    """Keep one view of a sentence nearer to it than another: the mean over i of max(0, s(aᵢ,farᵢ) − s(aᵢ,nearᵢ) + m).

    s is the cosine, or minus the angle in radians.

    Shapes: anchor, near, far (N, D); result a scalar.

    Source: ArcCSE (Zhang et al. 2022), whose paper was not read (methods/arccse.md). Doubtful: the margin and what is
    compared (AR1, `margin`, `by`).

    Args:
        margin: m.
        by: What says how near two vectors are.
    """

    def __init__(
        self,
        margin: Annotated[float, Field(ge=0), Tune(0.0, 0.3)] = 0.0,
        by: Literal["cosine", "angle"] = "cosine",
    ) -> None:
        super().__init__()
        self.margin, self.by = margin, by

    def forward(self, anchor: Sentences, near: Sentences, far: Sentences) -> Tensor:
        """Return the loss of the batch."""
        return (self._nearness(anchor, far) - self._nearness(anchor, near) + self.margin).clamp(min=0).mean()

    def _nearness(self, left: Tensor, right: Tensor) -> Tensor:
        cosines = cosine_rows(left, right)
        if self.by == "cosine":
            return cosines
        limit = 1 - torch.finfo(cosines.dtype).eps  # at ±1 the angle has no finite gradient
        return -cosines.clamp(-limit, limit).acos()
