"""ArcCSE's masked spans, each nested in that of a higher rate."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Annotated, ClassVar

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.errors import CseError
from registry.tokens import Pieces
from registry.types import Augmenter, Encoder


@AUGMENTERS.register("mask_nested_span")
class MaskNestedSpan(Augmenter):
    """Replace a span of a sentence's sub-words by mask tokens, nested in the span of each view with a higher rate.

    Of n sub-words the span has k = rate·n, rounded to the nearest integer, and starts at ⌊u·(n − k + 1)⌋. All views of
    a step use the same random u in [0, 1) for a sentence, so each start is equally likely, and for k < k′ the shorter
    span is inside the longer one.

    Shapes: the number of sub-words and the second segment do not change.

    Source: ArcCSE (Zhang et al. 2022), according to a summary by its authors' team: nested, contiguous masked spans
    (methods/arccse.md AR4).

    Args:
        rate: Share of sub-words that is masked.

    Example:
        [views.masked]
        encoder = "online"
        augment = [{ name = "mask_nested_span", rate = 0.2 }]
    """

    draws_alike: ClassVar[bool] = True

    def __init__(self, rate: Annotated[float, Field(ge=0, le=1), Tune(0.05, 0.6)] = 0.2) -> None:
        self.rate = rate
        self._mask = 0

    def bind(self, encoder: Encoder) -> None:
        """Read the ID of the mask token."""
        if encoder.vocabulary.mask is None:
            raise CseError(
                "mask_nested_span: the encoder's tokenizer has no mask token",
                "use a model that was pre-trained by masked language modeling, such as BERT or RoBERTa",
                code="masking.no_mask",
            )
        self._mask = encoder.vocabulary.mask

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the sentences with a masked span."""
        masked = []
        for row in pieces:
            ids, size = row.first, int(self.rate * len(row.first) + 0.5)
            start = int(rng.random() * (len(ids) - size + 1))
            masked.append(replace(row, first=(*ids[:start], *[self._mask] * size, *ids[start + size :])))
        return masked
