"""Span cutoff: embeddings of neighboring tokens set to zero."""

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
    """Set the embeddings inside or outside one contiguous span of each sentence's tokens to zero.

    "inside": zₚ ← 0 for s ≤ p < s + ⌊n·rate⌋. "outside": zₚ ← 0 for all real tokens except max(1, ⌊n·(1 − rate)⌋)
    tokens from s. The start s is uniform over all places at which the span fits into the n real tokens, which include
    [CLS] and [SEP]. It is drawn from torch's global generator. Padding and the attention mask do not change.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff) removes the span. ConSERT's code (Yan et al. 2021, not in the paper) keeps it and
    replaces the IDs outside by [PAD], still attended to: here `part = "outside"`, with zeros.

    Args:
        rate: Share of tokens whose embeddings become zero.
        part: Part that becomes zero: "inside" or "outside" of the span.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "span_cutoff", rate = 0.2 }]
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] = 0.2,
        part: Literal["inside", "outside"] = "inside",
    ) -> None:
        self.rate = rate
        self.part = part

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the embeddings with zeros."""
        real = embedded.tokens.mask.bool()
        sizes = real.sum(1)
        if self.part == "inside":
            cut = real & _span(real, share(sizes, self.rate))
        else:
            cut = real & ~_span(real, share(sizes, 1 - self.rate, at_least=1))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(-1), 0.0))


def _span(real: Tensor, lengths: Tensor) -> Tensor:
    """Return (B, L): a random span of `lengths` real places in each row."""
    starts = (torch.rand(len(real), device=real.device) * (real.sum(1) - lengths + 1)).long()
    ordinals = real.long().cumsum(1) - 1  # index of a place among the real ones
    return real & (ordinals >= starts.unsqueeze(1)) & (ordinals < (starts + lengths).unsqueeze(1))
