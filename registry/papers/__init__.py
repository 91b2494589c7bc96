"""The papers' tables as printed: `registry/papers/<key>.toml`. Light: no torch."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.papers.tables import AVERAGE, Column, Flag, PaperTables, Row, Table

__all__ = ["AVERAGE", "Column", "Flag", "PaperTables", "Row", "Table", "load", "names"]

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


@cache
def load(key: str) -> PaperTables:
    """Return the tables of one paper.

    Raises:
        UnknownNameError: No such paper; the message suggests the nearest.
    """
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}", f"the papers here are: {', '.join(names())}"
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})
