"""ESimCSE's word repetition: a longer sentence with the same meaning."""

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
    """Repeat some words of a sentence, so that its length depends less on its meaning.

    Of n units, d are drawn without replacement, and a copy is inserted after each. Special tokens are never repeated.
    "released": d is uniform over 0 … b − 1 with b = min(10, ⌊rate·m⌋), where m includes special tokens. For whole
    words, b = min(10, n, max(2, ⌊rate·n⌋)), and the last word is never repeated. "paper": d is uniform over 0 … max(2,
    ⌊rate·n⌋), at most n. As in the authors' code, the result can be longer than `data.max_length`.

    Each step draws again. The authors draw once before training. This is the same, because they train for one epoch.

    Source: ESimCSE (Wu et al. 2022, section 3.1; sub-words or words: section 5.2) and its code. It changes only the
    second copy of a sentence: use this augmenter in the view of the positive.
    Doubtful: number of repetitions (`count`, methods/esimcse.md ES1); length (`longest`, ES3).

    Args:
        rate: Share of a sentence that limits the number of repetitions. With 0 nothing is repeated.
        count: Distribution of the number of repetitions: that of the "released" code or of the "paper".
        unit: Repeated unit: a "subword" after tokenization, or a "word" between spaces before it.
        longest: Maximum number of sub-words after repetition, without special tokens. Default: no limit.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "repeat_words", rate = 0.32 }]
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
        """Return the samples with repeated words."""
        if self.unit != "word":
            return samples
        return [sample.changed(lambda text: self._words(text, rng)) for sample in samples]

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the pieces with repeated sub-words, truncated to `longest`. Segments are changed separately."""
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
        """Return the units, with up to `wanted` of the first `candidates` units repeated."""
        chosen = set(rng.sample(range(candidates), min(wanted, candidates))) if self.rate else set()
        return [copy for place, unit in enumerate(units) for copy in (unit,) * (1 + (place in chosen))]
