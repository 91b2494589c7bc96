"""ArcCSE's masked spans: views that lost more of a sentence lost all that the others lost."""

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
    """Replace a span of a sentence's sub-words by masks; of two views, that with the lower rate lies inside the other.

    Of n sub-words the span has k = rate·n, rounded to the nearest, and begins at ⌊u·(n − k + 1)⌋. All views of a step
    draw the same u from [0, 1) for a sentence: every place is as likely as another, and for k < k′ both the begin and
    the end of the shorter span lie within the longer one.

    Shapes: sub-words keep their number; a second segment is left as it is.

    Source: ArcCSE (Zhang et al. 2022), by a summary of its authors' team: nested, contiguous masked spans
    (methods/arccse.md AR4).

    Args:
        rate: Share of the sub-words that is masked.
    """

    draws_alike: ClassVar[bool] = True

    def __init__(self, rate: Annotated[float, Field(ge=0, le=1), Tune(0.05, 0.6)] = 0.2) -> None:
        self.rate = rate
        self._mask = 0

    def bind(self, encoder: Encoder) -> None:
        """Take the vocabulary's mask.

        Raises:
            CseError: It has none.
        """
        if encoder.vocabulary.mask is None:
            raise CseError(
                "mask_nested_span: the encoder's tokenizer has no mask token",
                "use a model that was pre-trained by masked language modelling, such as BERT or RoBERTa",
            )
        self._mask = encoder.vocabulary.mask

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the sentences with a span of each masked."""
        return [replace(row, first=self._masked(row.first, rng.random())) for row in pieces]

    def _masked(self, row: tuple[int, ...], u: float) -> tuple[int, ...]:
        size = int(self.rate * len(row) + 0.5)
        start = int(u * (len(row) - size + 1))
        return (*row[:start], *[self._mask] * size, *row[start + size :])
