"""ArcCSE's triplet loss: a sentence is closer to a lightly masked version than to a heavily masked one."""

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
    """Keep one view of a sentence closer to it than another view.

    ℓ = mean over i of max(0, s(aᵢ,farᵢ) − s(aᵢ,nearᵢ) + m),
    with s the cosine, or minus the angle in radians.

    Shapes: anchor, near, far (N, D); result a scalar.

    Source: ArcCSE (Zhang et al. 2022), whose paper was not read (methods/arccse.md). Doubtful: the margin and the
    compared quantity (AR1, `margin`, `by`).

    Args:
        margin: Margin m.
        by: Similarity s of two embeddings: "cosine", or "angle" for minus the angle.

    Examples:
        >>> import torch
        >>> from registry.losses.ordering import Ordering
        >>> views = torch.eye(3)
        >>> round(Ordering(margin=0.1)(views, views, views.roll(1, dims=0)).item(), 4)
        0.0
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
        limit = 1 - torch.finfo(cosines.dtype).eps  # the gradient of the angle is infinite at ±1
        return -cosines.clamp(-limit, limit).acos()
