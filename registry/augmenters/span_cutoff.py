"""Span cut-off: the vectors of neighbouring tokens set to zero."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import AUGMENTERS
from registry.augmenters.positions import share
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("span_cutoff")
class SpanCutoff(Augmenter):
    """Set the vectors of one contiguous span of each sentence's tokens to zero, or of all but a span.

    "inside": zₚ ← 0 for s ≤ p < s + ⌊n·rate⌋; "outside": zₚ ← 0 for all real tokens but max(1, ⌊n·(1 − rate)⌋) from s
    on. The start s is drawn evenly from all that fit the n real tokens, [CLS] and [SEP] among them, from torch's
    global stream, as dropout is. Padding is left alone, and so is the attention mask.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff) cuts the span; ConSERT's code (Yan et al. 2021; not in the paper) keeps it and
    replaces the ids outside by [PAD], still attended to: here `part = "outside"`, with zero vectors.

    Args:
        rate: Share of the tokens that is zeroed.
        part: What is zeroed: the "inside" of the span or what lies "outside".
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] = 0.2,
        part: Literal["inside", "outside"] = "inside",
    ) -> None:
        self.rate = rate
        self.part = part

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the vectors with a span zero, or with nothing but a span."""
        real = embedded.tokens.mask.bool()
        sizes = real.sum(1)
        if self.part == "inside":
            cut = real & _span(real, share(sizes, self.rate))
        else:
            cut = real & ~_span(real, share(sizes, 1 - self.rate, at_least=1))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(-1), 0.0))


def _span(real: Tensor, lengths: Tensor) -> Tensor:
    """Return (B, L): a random span of each row's real places, `lengths` long."""
    starts = (torch.rand(len(real), device=real.device) * (real.sum(1) - lengths + 1)).long()
    ordinals = real.long().cumsum(1) - 1  # a place's number among the real ones
    return real & (ordinals >= starts.unsqueeze(1)) & (ordinals < (starts + lengths).unsqueeze(1))
