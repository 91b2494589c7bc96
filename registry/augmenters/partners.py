"""Shared functions of augmenters of pairs: random rows and segments."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal, TypeVar

from registry.errors import CseError
from registry.tokens import Pieces, Sample

Segment = Literal["first", "second"]
T = TypeVar("T")


def another_row(place: int, rows: int, rng: Random) -> int:
    """Return a random row other than `place`."""
    if rows < 2:
        raise CseError(
            "another sentence of the batch is required, but the batch has only one row",
            "set train.batch_size to 2 or more",
            code="augmenters.one_row",
        )
    drawn = rng.randrange(rows - 1)
    return drawn + (drawn >= place)


def text_of(sample: Sample, segment: Segment) -> str:
    """Return the text of a segment."""
    return sample.text if segment == "first" else _present(sample.pair)


def with_text(sample: Sample, segment: Segment, text: str) -> Sample:
    """Return the sample with a changed segment."""
    return replace(sample, text=text) if segment == "first" else replace(sample, pair=text)


def pieces_of(pieces: Pieces, segment: Segment) -> tuple[int, ...]:
    """Return the sub-words of a segment."""
    return pieces.first if segment == "first" else _present(pieces.second)


def with_pieces(pieces: Pieces, segment: Segment, row: tuple[int, ...]) -> Pieces:
    """Return the pieces with a changed segment."""
    return replace(pieces, first=row) if segment == "first" else replace(pieces, second=row)


def _present(part: T | None) -> T:
    if part is None:
        raise CseError(
            'segment = "second" requires pairs, but the view has none',
            "add `pair` before this augmenter in the `augment` list of the view",
            code="augmenters.no_pairs",
        )
    return part
