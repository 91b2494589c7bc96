"""Antonyms in place of some of a sentence's words."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.augmenters.partners import Segment, another_row, pieces_of, text_of, with_pieces, with_text
from registry.lexicons.wordnet import installed, shipped
from registry.tokens import Pieces, Sample
from registry.types import Augmenter

WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


@AUGMENTERS.register("replace_antonyms")
class ReplaceAntonyms(Augmenter):
    """Replace some of the words that have an antonym by one of their antonyms.

    Of m words with an antonym max(1, round(rate·m)) are chosen without replacement; each becomes one of its antonyms,
    all with the same probability. Words are compared in lower case as they stand; their capitals and the punctuation
    around them are kept. Only words in the form WordNet lists have an antonym: "increase", not "increased".

    Args:
        segment: The sentence ("first"), or what stands behind it in a pair ("second").
        rate: Share of the words with an antonym that is replaced; one at least.
        fallback: A sentence without such a word becomes "other", another one of the batch, or stays the "same". So does
            a second segment of which the cut to `data.max_length` left only words of the first.
        wordnet: Folder of an installed WordNet's `data.noun`, `data.verb`, `data.adj`, `data.adv`; the table shipped
            with cse, made from WordNet 3.0, if left out.

    Shapes: (B,) sentences → (B,) sentences. `fallbacks` in the run's record is the share of sentences so far that came
    to this.

    Source: ConIsI §3.2.1, ConIsI-o2: behind `pair` with segment "second". Doubtful and settled in methods/conisi.md:
    how many words are replaced, and what happens where none can be (C6 → `rate`, `fallback`).
    """

    def __init__(
        self,
        segment: Segment = "first",
        rate: Annotated[float, Field(gt=0, le=1), Tune(0.05, 1.0)] = 0.15,
        fallback: Literal["other", "same"] = "other",
        wordnet: str | None = None,
    ) -> None:
        self.segment: Segment = segment
        self.rate = rate
        self.fallback = fallback
        self.antonyms = shipped() if wordnet is None else installed(Path(wordnet))
        self.seen = self.fallen_back = 0

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return the samples with the segment changed.

        Raises:
            CseError: There is no second segment, or no other sentence to fall back on.
        """
        return [self._changed(place, samples, rng) for place in range(len(samples))]

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the pieces, with another second segment where all that was replaced lies behind the cut."""
        if self.segment == "first":
            return pieces
        return [self._different(place, pieces, rng) for place in range(len(pieces))]

    def report(self) -> dict[str, float]:
        """Return the share of sentences without a replaced word."""
        return {"fallbacks": self.fallen_back / self.seen} if self.seen else {}

    def _changed(self, place: int, samples: list[Sample], rng: Random) -> Sample:
        self.seen += 1
        text = self._replaced(text_of(samples[place], self.segment), rng)
        if text is None and self.fallback == "other":
            self.fallen_back += 1
            text = samples[another_row(place, len(samples), rng)].text
        if text is not None:
            return with_text(samples[place], self.segment, text)
        self.fallen_back += self.segment == "first"  # a second segment is compared once it is cut
        return samples[place]

    def _different(self, place: int, pieces: list[Pieces], rng: Random) -> Pieces:
        first, second = pieces[place].first, pieces_of(pieces[place], "second")
        if first[: len(second)] != second:
            return pieces[place]
        self.fallen_back += 1
        if self.fallback == "same":
            return pieces[place]
        return with_pieces(pieces[place], "second", pieces[another_row(place, len(pieces), rng)].first[: len(second)])

    def _replaced(self, text: str, rng: Random) -> str | None:
        """Return the text with words replaced, or None where there is nothing to replace."""
        words = [word for word in WORD.finditer(text) if word[0].lower() in self.antonyms]
        if not words:
            return None
        chosen = rng.sample(words, max(1, round(self.rate * len(words))))
        made, end = [], 0
        for word in sorted(chosen, key=re.Match.start):
            antonym = rng.choice(self.antonyms[word[0].lower()])
            made += [text[end : word.start()], _as(word[0], antonym)]
            end = word.end()
        return "".join([*made, text[end:]])


def _as(word: str, antonym: str) -> str:
    """Return the antonym with the capitals of the word it replaces."""
    if word.isupper() and len(word) > 1:
        return antonym.upper()
    return antonym[0].upper() + antonym[1:] if word[0].isupper() else antonym
