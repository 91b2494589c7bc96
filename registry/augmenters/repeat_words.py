"""ESimCSE's word repetition: a longer sentence that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from registry import AUGMENTERS
from registry.tokens import Pieces, Sample
from registry.types import Augmenter, Encoder, Tune

T = TypeVar("T")


@AUGMENTERS.register("repeat_words")
class RepeatWords(Augmenter):
    """Double some words of a sentence in place, so that length says less about meaning.

    d of the n units, drawn without replacement, each followed by a copy of itself; special tokens never.
    "released": d is even over 0 … b − 1 with b = min(10, ⌊rate·m⌋), m counting special tokens too; for whole words
    b = min(10, n, max(2, ⌊rate·n⌋)), and the last word is never doubled. "paper": d is even over 0 … max(2, ⌊rate·n⌋),
    at most n. A doubled sentence may be longer than `data.max_length`, as in the authors' code.

    It is drawn anew at every step. The authors draw once, before training; in the one epoch they train, each sentence
    is seen once, so that this is the same.

    Source: ESimCSE (Wu et al. 2022, section 3.1; sub-words or words: section 5.2) and its code, which doubles the
    second copy of a sentence only: put this into the positive's view.
    Doubtful: how many (`count`, methods/esimcse.md ES1); length (`longest`, ES3).

    Args:
        rate: Share of a sentence that sets how much may be doubled; 0 doubles nothing.
        count: How many: as in the "released" code or the "paper".
        unit: What is doubled: a "subword" after the tokeniser, or a "word" between spaces before it.
        longest: Sub-words, specials not counted, that a sentence is cut to afterwards; uncut if left out.
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, le=1), Tune(0.1, 0.5)] = 0.32,
        count: Literal["released", "paper"] = "released",
        unit: Literal["subword", "word"] = "subword",
        longest: Annotated[int, Field(gt=0)] | None = None,
    ) -> None:
        self.rate, self.count, self.unit, self.longest = rate, count, unit, longest
        self.specials = 2

    def bind(self, encoder: Encoder) -> None:
        """Count the special tokens of a single sentence."""
        self.specials = -encoder.vocabulary.room(0)

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Double words between spaces."""
        if self.unit != "word":
            return samples
        return [sample.changed(lambda text: self._words(text, rng)) for sample in samples]

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Double sub-words, each side of a pair by itself, and cut to `longest`."""
        return [row.changed(lambda ids: self._subwords(ids, rng)) for row in pieces]

    def _words(self, text: str, rng: Random) -> str:
        words = text.split(" ")
        n = len(words)
        if self.count == "paper":
            return " ".join(self._doubled(words, n, self._paper(n, rng), rng))
        below = min(10, n, max(2, int(self.rate * n)))
        return " ".join(self._doubled(words, n - 1, rng.randrange(below), rng))

    def _subwords(self, ids: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        n = len(ids)
        if self.unit == "subword":
            below = min(10, int(self.rate * (n + self.specials)))
            wanted = self._paper(n, rng) if self.count == "paper" else rng.randrange(max(1, below))
            ids = tuple(self._doubled(ids, n, wanted, rng))
        return ids[: self.longest]

    def _paper(self, n: int, rng: Random) -> int:
        return rng.randint(0, max(2, int(self.rate * n)))

    def _doubled(self, units: Sequence[T], candidates: int, wanted: int, rng: Random) -> list[T]:
        """Return the units with `wanted` of the first `candidates` doubled, or all of these if there are fewer."""
        chosen = set(rng.sample(range(candidates), min(wanted, candidates))) if self.rate else set()
        return [copy for place, unit in enumerate(units) for copy in (unit,) * (1 + (place in chosen))]
