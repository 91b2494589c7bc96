"""Tables of papers, results of reproductions, and the recipes that reproduce them. Does not import torch."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.papers.audits import Badge, badge_of
from registry.papers.doubts import DoubtfulPoint, doubtful_points
from registry.papers.measured import MeasuredRow, measured_rows
from registry.papers.others import (
    COMMUNITY,
    LISTS,
    FieldRow,
    Reproduction,
    distribution,
    field_rows,
    listed_rows,
    reproductions,
)
from registry.papers.tables import AVERAGE, Answer, Column, Figure, Flag, PaperTables, Quoted, Row, Table

__all__ = [
    "AVERAGE", "COMMUNITY", "LISTS", "Answer", "Badge", "Column", "DoubtfulPoint", "FieldRow", "Figure", "Flag",
    "MeasuredRow", "PaperTables", "Quoted", "Reproduction", "Row", "Table", "badge_of", "distribution",
    "doubtful_points", "field_rows", "listed_rows", "load", "measured_rows", "names", "reproductions",
]  # fmt: skip

_HERE = Path(__file__).parent
_NO_PAPER = {"doubts", "measured", "reproductions"}


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted({path.stem for path in _HERE.glob("*.toml")} - _NO_PAPER)


@cache
def load(key: str) -> PaperTables:
    """Return the tables and figures of one paper.

    Raises:
        UnknownNameError: If it does not exist. The message suggests the closest name.
    """
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}",
            f"use one of {', '.join(names())}",
            code="papers.unknown",
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})
