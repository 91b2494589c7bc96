"""What every generator keeps: rows of text, the same every time, and no pair's score missing."""

from __future__ import annotations

from itertools import islice

from registry.core import Entry
from registry.testing.materials import Materials, require
from registry.types import Generator

PAIR = {"subset", "score", "sentence1", "sentence2"}
MANY = 50


def check_generator(entry: Entry[Generator], materials: Materials) -> None:
    """Check the first rows of each split a data set made by a generator has."""
    for split in ("train", "dev", "test"):
        first, second = (list(islice(materials.build(entry).rows(split), MANY)) for _ in range(2))
        require(entry, bool(first) and first == second, f"makes the same rows of '{split}' every time")
        columns = {frozenset(row) for row in first}
        require(entry, len(columns) == 1, f"gives every row of '{split}' the same columns")
        require(entry, "text" in first[0] or set(first[0]) >= PAIR, f"makes texts or scored pairs in '{split}'")
        cells = [cell for row in first for cell in row.values()]
        require(entry, all(isinstance(c, str) and "\n" not in c for c in cells), f"makes one-line cells in '{split}'")
