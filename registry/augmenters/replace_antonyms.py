"""Replacement of words by antonyms."""

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
    """Replace some of the words that have an antonym by an antonym.

    Of m words with an antonym, max(1, round(rate·m)) are chosen without replacement. Each is replaced by a random
    antonym. Words are looked up in lower case. Capitals and punctuation do not change. Only base forms that WordNet
    lists have an
    antonym: "increase", but not "increased".

    Args:
        segment: Segment that is changed: the "first" or "second" one.
        rate: Share of words with an antonym that are replaced, at least one.
        fallback: Replacement for a sentence without such a word: "other" is another sentence of the batch, "same"
            changes nothing. It also applies if truncation to `data.max_length` leaves no difference between the two
            segments.
        wordnet: Directory with the files `data.noun`, `data.verb`, `data.adj` and `data.adv` of WordNet. Default: the
            table of WordNet 3.0 in the package.

    Shapes: (B,) sentences → (B,) sentences. The run records the share of sentences with a fallback as `fallbacks`.

    Source: ConIsI §3.2.1, ConIsI-o2: after `pair`, with segment "second". Doubtful and settled in methods/conisi.md:
    number of replaced words, and sentences without antonyms (C6 → `rate`, `fallback`).

    Example:
        [views.opposite]
        encoder = "online"
        augment = [{ name = "pair" }, { name = "replace_antonyms", segment = "second" }]
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
        """Return the samples with a changed segment."""
        return [self._changed(place, samples, rng) for place in range(len(samples))]

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the pieces, with the fallback if truncation removed all replaced words."""
        if self.segment == "first":
            return pieces
        return [self._different(place, pieces, rng) for place in range(len(pieces))]

    def report(self) -> dict[str, float]:
        """Return the share of sentences with a fallback."""
        return {"fallbacks": self.fallen_back / self.seen} if self.seen else {}

    def _changed(self, place: int, samples: list[Sample], rng: Random) -> Sample:
        self.seen += 1
        text = self._replaced(text_of(samples[place], self.segment), rng)
        if text is None and self.fallback == "other":
            self.fallen_back += 1
            text = samples[another_row(place, len(samples), rng)].text
        if text is not None:
            return with_text(samples[place], self.segment, text)
        self.fallen_back += self.segment == "first"  # a second segment is compared after truncation
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
        """Return the text with replaced words, or None if no word has an antonym."""
        words = [word for word in WORD.finditer(text) if word[0].lower() in self.antonyms]
        if not words:
            return None
        chosen = rng.sample(words, max(1, round(self.rate * len(words))))
        made, end = [], 0
        for word in sorted(chosen, key=re.Match.start):
            antonym = rng.choice(self.antonyms[word[0].lower()])
            if word[0].isupper() and len(word[0]) > 1:  # the capitals of the original word
                antonym = antonym.upper()
            elif word[0][0].isupper():
                antonym = antonym[0].upper() + antonym[1:]
            made += [text[end : word.start()], antonym]
            end = word.end()
        return "".join([*made, text[end:]])
