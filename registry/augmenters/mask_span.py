"""Mirror-BERT's random span masking: a few characters of the text, in place of which stands a mask."""

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
    """Replace a span of a sentence's characters by a mask, with a space on each side of it.

    Of a text of n characters the span is the c characters from a place drawn evenly from 0 … n − c − 1, words and
    spaces alike, so that the last character always stays. Texts of c characters or fewer, or of fewer than `shortest`,
    stay as they are; so does the second segment of a pair.

    Source: Mirror-BERT (Liu et al. 2021, section 2.1) and its code (`erase_and_mask`), which changes the second copy of
    a sentence only: put this into the positive's view.
    Doubtful and settled in methods/mirror_bert.md: which occurrence of the span is replaced (MB1, `at`); the mask of
    other tokenizers than BERT's (MB6, `mask`).

    Args:
        characters: c.
        shortest: Characters of the shortest text that is changed.
        at: The code cuts at the "first" occurrence of the span's characters in the text; "drawn" cuts where the span
            was drawn.
        mask: What is written in its place. RoBERTa's tokenizer takes "<mask>" for its mask and "[MASK]", which the
            authors write for it too, for plain text.
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
        """Return the samples with a span of each text masked."""
        return [replace(sample, text=self._masked(sample.text, rng)) for sample in samples]

    def _masked(self, text: str, rng: Random) -> str:
        if len(text) < self.shortest or len(text) <= self.characters:
            return text
        start = rng.randrange(len(text) - self.characters)
        if self.at == "first":
            start = text.index(text[start : start + self.characters])
        return f"{text[:start]} {self.mask} {text[start + self.characters :]}"
