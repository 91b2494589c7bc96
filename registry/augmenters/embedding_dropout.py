"""Dropout of single elements of token embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import AUGMENTERS
from registry.augmenters.positions import choose, share
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("embedding_dropout")
class EmbeddingDropout(Augmenter):
    """Set random elements of each sentence's token embeddings to zero.

    "count": exactly ⌊n·W·rate⌋ of the n·W elements of a sentence with n real tokens. "chance": each element
    independently with probability `rate`, as in torch's dropout. Padding does not change. Uses torch's global
    generator.

    Shapes: (B, L, W) → (B, L, W).

    Source: ConSERT (Yan et al. 2021, section 3.2). In its code the number is exact and the rest is not rescaled.
    Doubtful: whether the rest is multiplied by 1/(1 − rate), as dropout usually does (`scale`, methods/consert.md CS5).

    Args:
        rate: Share of elements that becomes zero.
        draw: An exact "count" in each sentence, or "chance".
        scale: Multiply the other elements by 1/(1 − rate).

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "embedding_dropout", rate = 0.2 }]
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] = 0.2,
        draw: Literal["count", "chance"] = "count",
        scale: bool = False,
    ) -> None:
        self.rate, self.draw, self.scale = rate, draw, scale

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the embeddings with zeros."""
        kept = embedded.vectors.masked_fill(self._cut(embedded), 0.0)
        return Embedded(embedded.tokens, kept / (1 - self.rate) if self.scale else kept)

    def _cut(self, embedded: Embedded) -> Tensor:
        """Return (B, L, W): whether each element becomes zero."""
        real = embedded.tokens.mask.bool().unsqueeze(-1).expand(embedded.vectors.shape)
        if self.draw == "chance":
            return real & (torch.rand(real.shape, device=real.device) < self.rate)
        candidates = real.flatten(1)
        return choose(candidates, share(candidates.sum(1), self.rate)).view(real.shape)
