"""DeCLUTR's views: spans of a document, some of them near each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from registry import AUGMENTERS
from registry.errors import CseError
from registry.tokens import Pieces
from registry.types import Augmenter

Count = Annotated[int, Field(ge=1)]


class Span(NamedTuple):
    """Sub-words `start` to `stop` of a document."""

    start: int
    stop: int


@AUGMENTERS.register("spans")
class Spans(Augmenter):
    """Keep one span of a document: an anchor, or a positive that overlaps, adjoins or lies inside its anchor.

    A document of n sub-words is cut into ⌊n/longest⌋ cells, of which as many as there are anchors are drawn, no two
    side by side; an anchor lies anywhere inside its cell. Lengths are shortest + ⌊β·(longest − shortest)⌋ with β from
    Beta(4, 2) for anchors, which are long, and Beta(2, 4) for positives, which are short. A positive of p sub-words
    starts anywhere between p before its anchor and the anchor's end.

    All views of a step draw the same spans, of which each takes its own: give them the same `anchors`, `positives`,
    `shortest` and `longest`, and each a place in `anchor` and `positive`. A document with fewer than 2·anchors·longest
    sub-words has a `longest` that fits; one with fewer than 2·anchors is a span as a whole. `data.max_length` cuts the
    span, not the document.

    Source: DeCLUTR (Giorgi et al. 2021, section 3.1) and its code. Doubtful and settled in methods/declutr.md: what is
    counted (DE2), short documents (DE4), how cells are drawn (DE5).

    Args:
        anchor: Which anchor of the document, counted from 0.
        positive: Which of that anchor's positives, counted from 0; the anchor itself if left out.
        anchors: Anchors of a document.
        positives: Positives of an anchor.
        shortest: Sub-words of a span at least.
        longest: Sub-words of a span at most.
    """

    reads_whole_text: ClassVar[bool] = True
    draws_alike: ClassVar[bool] = True

    def __init__(
        self,
        anchor: Annotated[int, Field(ge=0)] = 0,
        positive: Annotated[int, Field(ge=0)] | None = None,
        anchors: Count = 2,
        positives: Count = 2,
        shortest: Count = 32,
        longest: Count = 512,
    ) -> None:
        for name, place, count in (("anchor", anchor, anchors), ("positive", positive or 0, positives)):
            if place >= count:
                raise CseError(
                    f"spans: {name} = {place}, but there are {count}, counted from 0", f"{name} = {count - 1}, or less"
                )
        if shortest > longest:
            raise CseError(f"spans: shortest = {shortest} is more than longest = {longest}", "exchange them")
        self.anchor, self.positive = anchor, positive
        self.anchors, self.positives = anchors, positives
        self.shortest, self.longest = shortest, longest

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return this view's span of each document; a second segment is left as it is."""
        return [replace(row, first=self._chosen(row.first, self.draw(len(row.first), rng))) for row in pieces]

    def draw(self, length: int, rng: Random) -> list[tuple[Span, list[Span]]]:
        """Return each anchor of a document of `length` sub-words, and its positives."""
        longest = min(self.longest, length // (2 * self.anchors))
        if longest == 0:
            whole = Span(0, length)
            return [(whole, [whole] * self.positives)] * self.anchors
        shortest = min(self.shortest, longest)
        # Places among the cells less one for each anchor that lies before: so no two cells are side by side.
        places = sorted(rng.sample(range(length // longest - self.anchors + 1), self.anchors))
        spans = []
        for before, place in enumerate(places):
            size = shortest + int(rng.betavariate(4, 2) * (longest - shortest))
            start = (place + before) * longest + rng.randint(0, longest - size)
            anchor = Span(start, start + size)
            sizes = [shortest + int(rng.betavariate(2, 4) * (longest - shortest)) for _ in range(self.positives)]
            spans.append((anchor, [_near(anchor, size, length, rng) for size in sizes]))
        return spans

    def _chosen(self, ids: Sequence[int], spans: list[tuple[Span, list[Span]]]) -> tuple[int, ...]:
        anchor, positives = spans[self.anchor]
        start, stop = anchor if self.positive is None else positives[self.positive]
        return tuple(ids[start:stop])


def _near(anchor: Span, size: int, length: int, rng: Random) -> Span:
    start = rng.randint(max(0, anchor.start - size), min(anchor.stop, length - size))
    return Span(start, start + size)
