"""Adversarial noise: token embeddings moved along the gradient of the loss."""

from __future__ import annotations

from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import AUGMENTERS
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("adversarial_noise")
class AdversarialNoise(Augmenter):
    """Move token embeddings along the gradient of the loss by a step of fixed length.

    z′ = z + norm · g / ‖g‖, with g = ∂L/∂z of the loss of the whole batch, computed without this noise in any view. No
    gradient flows through g. One more forward and backward pass per step is necessary, which all views share.

    Shapes: (B, L, W) → (B, L, W).

    Source: ConSERT (Yan et al. 2021, section 3.2), based on Goodfellow et al. 2015.
    Doubtful and settled in methods/consert.md: the paper uses it only with labels, and its code takes g from the
    classification loss. Without labels, g is the gradient of the recipe's own losses (CS6). The code normalizes each
    token separately (`normalize`, CS7).

    Args:
        norm: Length of the step. The default is that of the authors' script, and their loss class has 0.01.
        normalize: Unit that is normalized: each "token", each "sentence", or "none" for a step of norm · g.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "adversarial_noise", norm = 1.0 }]
    """

    def __init__(
        self,
        norm: Annotated[float, Field(ge=0), Tune(0.01, 10.0, log=True)] = 1.0,
        normalize: Literal["token", "sentence", "none"] = "token",
    ) -> None:
        self.norm = norm
        self.normalize = normalize

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        """Return the moved embeddings."""
        if self.norm == 0:
            return embedded
        noise = self.norm * self._direction(step.gradient(view).detach().float())
        return Embedded(embedded.tokens, embedded.vectors + noise.to(embedded.vectors.dtype))

    def _direction(self, gradient: Tensor) -> Tensor:
        if self.normalize == "none":
            return gradient
        if self.normalize == "token":
            return F.normalize(gradient, dim=-1, eps=1e-12)
        return F.normalize(gradient.flatten(1), dim=-1, eps=1e-12).view_as(gradient)
