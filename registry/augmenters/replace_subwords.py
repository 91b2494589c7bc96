"""Random sub-words in place of some of a sentence's own."""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.augmenters.partners import Segment, pieces_of, with_pieces
from registry.tokens import Pieces
from registry.types import Augmenter, Encoder


@AUGMENTERS.register("replace_subwords")
class ReplaceSubwords(Augmenter):
    """Choose some sub-words; replace most of them by random ones of the vocabulary.

    Of n sub-words max(1, round(rate·n)) are chosen without replacement; each becomes a random id that is no special
    token with probability `change`, and stays as it is otherwise.

    Args:
        segment: The sentence ("first"), or what stands behind it in a pair ("second").
        rate: Share of the sub-words chosen; one at least.
        change: Probability that a chosen one is replaced.

    Shapes: sub-words keep their number.

    Source: ConIsI §3.2.1, ConIsI-o1: behind `pair` with segment "second". Doubtful and settled in methods/conisi.md:
    the share is not printed (C6 → `rate`); 80 % and 20 % are.
    """

    def __init__(
        self,
        segment: Segment = "first",
        rate: Annotated[float, Field(gt=0, le=1), Tune(0.05, 0.5)] = 0.15,
        change: Annotated[float, Field(ge=0, le=1), Tune(0.5, 1.0)] = 0.8,
    ) -> None:
        self.segment, self.rate, self.change = segment, rate, change
        self._ids: tuple[int, ...] = ()

    def bind(self, encoder: Encoder) -> None:
        """Collect the ids to draw from."""
        vocabulary = encoder.vocabulary
        self._ids = tuple(each for each in range(vocabulary.size) if each not in vocabulary.specials)

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the pieces with the segment changed.

        Raises:
            CseError: There is no second segment.
        """
        segment = self.segment
        return [with_pieces(each, segment, self._changed(pieces_of(each, segment), rng)) for each in pieces]

    def _changed(self, row: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        changed = list(row)
        for place in rng.sample(range(len(row)), min(len(row), max(1, round(self.rate * len(row))))):
            if rng.random() < self.change:
                changed[place] = rng.choice(self._ids)
        return tuple(changed)
