"""Hardness of the hard negatives of a text: their words in common with the anchors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from registry.evaluators.pairs import one_line
from registry.words import word_overlap

Triple = tuple[str, str, str]
"""Anchor, positive and hard negative of a row."""


@dataclass(frozen=True)
class Negatives:
    """Hard negatives of some rows.

    Args:
        rows: Number of rows.
        positive: Mean `registry.words.word_overlap` of anchor and positive.
        negative: Mean word overlap of anchor and negative.
        harder: Number of rows whose negative has at least as much word overlap with the anchor as the positive.
        equal_to_positive: Number of rows whose negative is equal to the positive.
        equal_to_anchor: Number of rows whose negative is equal to the anchor.
        overlaps: Word overlap of anchor and positive, and of anchor and negative, in ten equal bins: number of rows.
    """

    rows: int
    positive: float
    negative: float
    harder: int
    equal_to_positive: int
    equal_to_anchor: int
    overlaps: tuple[tuple[int, ...], tuple[int, ...]]


def compare_negatives(triples: Iterable[Triple]) -> Negatives:
    """Return the hardness of the negatives. White space is reduced to single spaces before sentences are compared."""
    rows = harder = equal_to_positive = equal_to_anchor = 0
    sums, bins = [0.0, 0.0], ([0] * 10, [0] * 10)
    for triple in triples:
        anchor, positive, negative = map(one_line, triple)
        both = word_overlap(anchor, positive), word_overlap(anchor, negative)
        for place, overlap in enumerate(both):
            sums[place] += overlap
            bins[place][min(9, int(10 * overlap))] += 1
        rows += 1
        harder += both[1] >= both[0]
        equal_to_positive += negative == positive
        equal_to_anchor += negative == anchor
    overlaps = tuple(bins[0]), tuple(bins[1])
    means = sums[0] / rows, sums[1] / rows
    return Negatives(rows, means[0], means[1], harder, equal_to_positive, equal_to_anchor, overlaps)
