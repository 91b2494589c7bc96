"""Common component removal: sentence embeddings without the directions that all of them share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.whitening import LinearAdjustment, Moments, without_top
from registry.errors import CseError
from registry.types import Tune


@ENCODERS.register("component_removal")
class ComponentRemoval(LinearAdjustment):
    """Remove the first directions of another encoder's embeddings.

    x' = x − U·Uᵀ·x, where U (D, `components`) are the first singular vectors of the embeddings of unlabeled sentences,
    as in SIF. With `center`, the mean of these embeddings is subtracted first, and U are their principal components, as
    in all-but-the-top. An export is the other encoder with one more dense layer.

    Shapes: (B, D) → (B, D).

    Source: Arora et al. 2017 (SIF), Algorithm 1, and its code (PrincetonML/SIF @84b5b4c, src/SIF_embedding.py:19-42);
    Mu and Viswanath 2018 (all-but-the-top), Algorithm 1. Settled in methods/sif.md: sentences of the fit (SI2,
    `fit_on`), mean (SI3, `center`).

    Args:
        components: Number of removed directions.
        center: Whether the mean is subtracted.

    Example:
        [encoders.sif]
        name = "component_removal"
        of = "online"
        fit_on = "target"
    """

    method: ClassVar[str] = "component_removal"

    def __init__(
        self,
        components: Annotated[int, Field(ge=1), Tune(1, 5)] = 1,
        center: bool = False,
        **fitted_to: Any,
    ) -> None:
        super().__init__(**fitted_to)
        self.components, self.center = components, center

    def linear(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Return the projection, and the bias that subtracts the mean."""
        scatter = moments.covariance() * (moments.count - 1)
        if self.center:
            weight = without_top(scatter, self.components)
            return weight, -weight @ moments.mean
        weight = without_top(scatter + moments.count * torch.outer(moments.mean, moments.mean), self.components)
        return weight, torch.zeros_like(moments.mean)

    def check(self, vectors: Tensor) -> None:
        """Check a chunk of embeddings."""
        if self.components >= vectors.shape[1]:
            raise CseError(
                f"component_removal: components = {self.components} removes all {vectors.shape[1]} directions",
                f"use components < {vectors.shape[1]}",
                code="encoders.too_many_directions",
            )
        super().check(vectors)
