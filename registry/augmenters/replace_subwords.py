"""Replacement of sub-words by random ones."""

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
    """Replace some sub-words by random ones of the vocabulary.

    Of n sub-words, max(1, round(rate·n)) are chosen without replacement. With probability `change`, each becomes a
    random ID that is not a special token. The others do not change.

    Args:
        segment: Segment that is changed: the "first" or "second" one.
        rate: Share of sub-words that are chosen, at least one.
        change: Probability that a chosen sub-word is replaced.

    Shapes: the number of sub-words does not change.

    Source: ConIsI §3.2.1, ConIsI-o1: after `pair`, with segment "second". Doubtful and settled in methods/conisi.md:
    the share is not reported (C6 → `rate`), but 80 % and 20 % are.

    Example:
        [views.noisy]
        encoder = "online"
        augment = [{ name = "pair" }, { name = "replace_subwords", segment = "second" }]
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
        """Collect the IDs of all tokens except special tokens."""
        vocabulary = encoder.vocabulary
        self._ids = tuple(each for each in range(vocabulary.size) if each not in vocabulary.specials)

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the pieces with a changed segment."""
        segment = self.segment
        return [with_pieces(each, segment, self._changed(pieces_of(each, segment), rng)) for each in pieces]

    def _changed(self, row: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        changed = list(row)
        for place in rng.sample(range(len(row)), min(len(row), max(1, round(self.rate * len(row))))):
            if rng.random() < self.change:
                changed[place] = rng.choice(self._ids)
        return tuple(changed)
