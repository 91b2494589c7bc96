"""Adversarial noise: token vectors moved to where the loss is larger."""

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
    """Move token vectors along the gradient of the loss, by a step of given length.

    z′ = z + norm · g / ‖g‖, with g = ∂L/∂z of the whole batch's loss at the point where no view is perturbed by it;
    no gradient flows through g. It costs one more forward and backward pass a step, shared by all views.

    Shapes: (B, L, W) → (B, L, W).

    Source: ConSERT (Yan et al. 2021, section 3.2), after Goodfellow et al. 2015.
    Doubtful and settled in methods/consert.md: the paper uses it with labels only, and its code takes g from the
    classification loss, of which there is none without labels: here g is that of the recipe's own losses (CS6); the
    code normalises token by token (`normalise`, CS7).

    Args:
        norm: Length of the step; the authors' script defaults to 1.0, their loss class to 0.01.
        normalise: What has unit length before: each "token", each "sentence" as a whole, or "none", where the step is
            norm · g.
    """

    def __init__(
        self,
        norm: Annotated[float, Field(ge=0), Tune(0.01, 10.0, log=True)] = 1.0,
        normalise: Literal["token", "sentence", "none"] = "token",
    ) -> None:
        self.norm = norm
        self.normalise = normalise

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        """Return the moved vectors."""
        if self.norm == 0:
            return embedded
        noise = self.norm * self._direction(step.gradient(view).detach().float())
        return Embedded(embedded.tokens, embedded.vectors + noise.to(embedded.vectors.dtype))

    def _direction(self, gradient: Tensor) -> Tensor:
        if self.normalise == "none":
            return gradient
        if self.normalise == "token":
            return F.normalize(gradient, dim=-1, eps=1e-12)
        return F.normalize(gradient.flatten(1), dim=-1, eps=1e-12).view_as(gradient)
