"""Mirror-BERT's random span masking: some characters of the text replaced by a mask."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Sample
from registry.types import Augmenter


@AUGMENTERS.register("mask_span")
class MaskSpan(Augmenter):
    """Replace a span of a sentence's characters by a mask between two spaces.

    Of a text with n characters the span has c characters, words and spaces included, and starts at a random place from
    0 to n − c − 1, so the last character never changes. Texts with at most c or fewer than `shortest` characters do not
    change. The second segment of a pair does not change either.

    Source: Mirror-BERT (Liu et al. 2021, section 2.1) and its code (`erase_and_mask`). It changes only the second copy
    of a
    sentence: use this augmenter in the view of the positive.
    Doubtful and settled in methods/mirror_bert.md: the occurrence of the span that is replaced (MB1, `at`); the mask of
    other tokenizers (MB6, `mask`).

    Args:
        characters: Number of characters c of the span.
        shortest: Minimum length of a text that is changed, in characters.
        at: Occurrence of the span's characters that is replaced: the "first" in the text, as in the authors' code, or
            the "drawn" one.
        mask: String that replaces the span. RoBERTa's tokenizer reads "<mask>" as its mask token, but "[MASK]", which
            the authors use there too, as plain text.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "mask_span", characters = 5 }]
    """

    def __init__(
        self,
        characters: Annotated[int, Field(gt=0), Tune(1, 20)] = 5,
        shortest: Annotated[int, Field(ge=0)] = 30,
        at: Literal["first", "drawn"] = "first",
        mask: Annotated[str, Field(min_length=1)] = "[MASK]",
    ) -> None:
        self.characters, self.shortest, self.at, self.mask = characters, shortest, at, mask

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return the samples with a masked span."""
        return [replace(sample, text=self._masked(sample.text, rng)) for sample in samples]

    def _masked(self, text: str, rng: Random) -> str:
        if len(text) < self.shortest or len(text) <= self.characters:
            return text
        start = rng.randrange(len(text) - self.characters)
        if self.at == "first":
            start = text.index(text[start : start + self.characters])
        return f"{text[:start]} {self.mask} {text[start + self.characters :]}"
