"""The papers' tables as printed, and what others measured: `registry/papers/`. Light: no torch."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.papers.cells import AVERAGE, Answer, Column, Flag, Row
from registry.papers.counting import Counts, count
from registry.papers.field_rows import FieldRow, field
from registry.papers.field_rows import source as field_source
from registry.papers.paper import Figure, PaperTables, Quoted
from registry.papers.reproduced import Reproduction, distribution, reproductions
from registry.papers.tables import Table

__all__ = [
    "AVERAGE",
    "Answer",
    "Column",
    "Counts",
    "FieldRow",
    "Figure",
    "Flag",
    "PaperTables",
    "Quoted",
    "Reproduction",
    "Row",
    "Table",
    "count",
    "distribution",
    "field",
    "field_source",
    "load",
    "names",
    "reproductions",
]

_HERE = Path(__file__).parent
_NO_PAPER = {"reproductions"}


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted({path.stem for path in _HERE.glob("*.toml")} - _NO_PAPER)


@cache
def load(key: str) -> PaperTables:
    """Return the tables and figures of one paper.

    Raises:
        UnknownNameError: No such paper; the message suggests the nearest.
    """
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}", f"the papers here are: {', '.join(names())}"
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})
