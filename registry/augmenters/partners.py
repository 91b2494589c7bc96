"""What augmenters of pairs share: another row of the batch, and the segment they change. Registers nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal, TypeVar

from registry.errors import CseError
from registry.tokens import Pieces, Sample

Segment = Literal["first", "second"]
T = TypeVar("T")


def another_row(place: int, rows: int, rng: Random) -> int:
    """Return a row that is not `place`, each with the same probability.

    Raises:
        CseError: There is one row.
    """
    if rows < 2:
        raise CseError(
            "another sentence of the batch is asked for, and the batch has one row", "set train.batch_size to 2 or more"
        )
    drawn = rng.randrange(rows - 1)
    return drawn + (drawn >= place)


def text_of(sample: Sample, segment: Segment) -> str:
    """Return a segment's text.

    Raises:
        CseError: There is no second segment.
    """
    return sample.text if segment == "first" else _present(sample.pair)


def with_text(sample: Sample, segment: Segment, text: str) -> Sample:
    """Return the sample with other text in a segment."""
    return replace(sample, text=text) if segment == "first" else replace(sample, pair=text)


def pieces_of(pieces: Pieces, segment: Segment) -> tuple[int, ...]:
    """Return a segment's sub-words.

    Raises:
        CseError: There is no second segment.
    """
    return pieces.first if segment == "first" else _present(pieces.second)


def with_pieces(pieces: Pieces, segment: Segment, row: tuple[int, ...]) -> Pieces:
    """Return the pieces with other sub-words in a segment."""
    return replace(pieces, first=row) if segment == "first" else replace(pieces, second=row)


def _present(part: T | None) -> T:
    if part is None:
        raise CseError(
            'segment = "second", but the view has no pairs', "put `pair` before this augmenter in the view's list"
        )
    return part
