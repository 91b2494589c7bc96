"""Detection of tables in files of plain text, whose separators a training would read as words."""

from __future__ import annotations

import csv
import re
from itertools import islice
from pathlib import Path

from registry.errors import CseError
from registry.resources.rows import lines

LINES = 100
"""Number of first lines to look at."""
FEWEST = 3
"""Minimum number of lines of a table, with its header."""
_NAME = re.compile(r"\w[\w.-]*(?: \w[\w.-]*)?")
"""Name of a column: one or two words. In prose, a space follows the comma before the next part of a sentence."""


def refuse_table(path: Path) -> None:
    """Refuse a `.txt` file that contains a table with tabs, or with commas and a header.

    Every one of the first lines has the same number of tabs, or the first line consists of different names without a
    space after the commas, and every other one has the same number of cells.
    """
    try:
        first = [line for _, line in islice(lines(path), LINES) if line.strip()]
    except CseError:  # its reader reports that
        return
    if len(first) < FEWEST:
        return
    names = [name.strip('"') for name in first[0].split(",")]
    is_header = 1 < len(names) == len(set(names)) and all(map(_NAME.fullmatch, names))
    if "\t" in first[0] and len({line.count("\t") for line in first}) == 1:
        header, what, suffix = first[0].split("\t"), "TABs", ".tsv"
    elif is_header and _have_equal_cells(first):
        header, what, suffix = first[0].split(","), "commas", ".csv"
    else:
        return
    name = path.name.replace(".txt", suffix)
    raise CseError(
        f"{path}:1: the first {len(first)} lines have {len(header)} cells each, separated by {what}: {first[0][:60]}",
        f"if it is a table, rename it to {name} and set data.column to the column with the sentences. If it is text, "
        + ("replace the TABs by spaces" if suffix == ".tsv" else "remove the first line"),
        code="data.table_in_text",
    )


def _have_equal_cells(lines: list[str]) -> bool:
    """Return whether all rows have the same number of cells. Only the last row may be cut inside quotes."""
    try:
        rows = list(csv.reader([f"{line}\n" for line in lines]))
    except csv.Error:
        return False
    whole = rows if len(rows) == len(lines) else rows[:-1]
    return len(whole) >= FEWEST and len({len(row) for row in whole}) == 1
