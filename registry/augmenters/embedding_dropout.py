"""Dropout of the token vectors as an augmentation of its own: single numbers set to zero."""

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
    """Set random numbers of each sentence's token vectors to zero.

    "count": exactly ⌊n·W·rate⌋ of the n·W numbers of a sentence's n real tokens. "chance": each number by itself with
    probability `rate`, as torch's dropout. Drawn from torch's global stream; padding is left alone.

    Shapes: (B, L, W) → (B, L, W).

    Source: ConSERT (Yan et al. 2021, section 3.2), in whose code the number is exact and nothing is rescaled.
    Doubtful: whether what stays is multiplied by 1/(1 − rate), as dropout usually does (`scale`, methods/consert.md
    CS5).

    Args:
        rate: Share of the numbers that is zeroed.
        draw: An exact "count" for every sentence, or by "chance".
        scale: Multiply what stays by 1/(1 − rate).
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] = 0.2,
        draw: Literal["count", "chance"] = "count",
        scale: bool = False,
    ) -> None:
        self.rate, self.draw, self.scale = rate, draw, scale

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the vectors with some numbers zero."""
        kept = embedded.vectors.masked_fill(self._cut(embedded), 0.0)
        return Embedded(embedded.tokens, kept / (1 - self.rate) if self.scale else kept)

    def _cut(self, embedded: Embedded) -> Tensor:
        """Return (B, L, W): the numbers that are zeroed."""
        real = embedded.tokens.mask.bool().unsqueeze(-1).expand(embedded.vectors.shape)
        if self.draw == "chance":
            return real & (torch.rand(real.shape, device=real.device) < self.rate)
        candidates = real.flatten(1)
        return choose(candidates, share(candidates.sum(1), self.rate)).view(real.shape)
