"""Rows of named data sets, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from registry.catalogue.entries import PAIR_COLUMNS, entry
from registry.catalogue.find import locate
from registry.catalogue.sources import Source, checked
from registry.errors import CseError


class Pair(NamedTuple):
    """Two sentences and how similar people found them."""

    subset: str
    score: float
    first: str
    second: str


def read_pairs(name: str, split: str) -> list[Pair]:
    """Return the scored pairs of a split, in the order of its files.

    Raises:
        CseError: The data set holds no pairs, a score is no number, or rows are missing.
        MissingError: It is not on this machine and cannot be fetched.
    """
    about = entry(name)
    if about.columns_of(split) != PAIR_COLUMNS:
        raise CseError(
            f"dataset '{name}', split '{split}' has columns {', '.join(about.columns_of(split))}: no scored pairs",
            "`cse data list` shows the data sets of kind 'pairs'",
        )
    source = locate(name, split)
    pairs = [_pair(source, number, *row) for number, row in enumerate(source.read(PAIR_COLUMNS), start=1)]
    checked(source, len(pairs))
    return pairs


def open_text(name: str, split: str = "train") -> Iterator[dict[str, str]]:
    """Yield the rows of a split, column → cell.

    Raises:
        CseError: A row is malformed, or, after the last one, rows are missing.
        MissingError: The data set is not on this machine and cannot be fetched.
    """
    source = locate(name, split)
    number = 0
    for row in source.read(source.columns):
        number += 1
        yield dict(zip(source.columns, row, strict=True))
    checked(source, number)


def fingerprint(name: str, split: str) -> str:
    """Return the SHA-256 of a split's content; the same for a file and for its `.gz`."""
    return locate(name, split).scan().digest


def _pair(source: Source, row: int, subset: str, score: str, first: str, second: str) -> Pair:
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CseError(f"{source.place(row)}: the score {score!r} is no number")
    return Pair(subset, value, first, second)
