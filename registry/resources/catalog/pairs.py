"""Scored sentence pairs from the catalog or a user's file. Every row is checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from itertools import combinations
from typing import NamedTuple

from registry.errors import CseError
from registry.paths import state_of
from registry.resources.catalog.entries import PAIR_COLUMNS, entry
from registry.resources.catalog.find import locate, own_file, require_own_file
from registry.resources.catalog.readers import FORMATS, Column, File, Record, Rows, Table, names_a_file, shown

HUB = "hf:"
"""Prefix of data sets of the Hub."""

ROWS = "rows:"
"""Prefix of digests of rows."""

_SCORE = "write a number with a decimal point and without quotes, or remove the row"


class Pair(NamedTuple):
    """Two sentences and their gold score."""

    subset: str
    score: float
    first: str
    second: str


def read_pairs(name: str, split: str) -> list[Pair]:
    """Return the scored pairs of a split, in the order of its files.

    Raises:
        CseError: If the data set has no pairs, a cell is not a sentence or a number, or rows are missing.
        MissingError: If it cannot be downloaded.
    """
    columns = entry(name).columns_of(split)
    if columns != PAIR_COLUMNS:
        raise CseError(
            f"dataset '{name}', split '{split}' has no scored pairs, only columns {', '.join(columns)}",
            "use a data set of kind 'pairs': see `cse data list`",
            code="data.no_pairs",
        )
    source = locate(name, split)
    wanted = [Column("", column) for column in ("sentence1", "sentence2", "score", "subset")]
    pairs = [_pair(record, wanted, str(record.cells[3])) for record in source.records(wanted)]
    source.check(len(pairs))
    return pairs


def open_text(name: str, split: str = "train") -> Iterator[dict[str, str]]:
    """Yield the rows of a split, column → cell. A wrong number of rows is an error after the last one."""
    source, rows = locate(name, split), 0
    for row in source.rows():
        rows += 1
        yield dict(zip(source.columns, row, strict=True))
    source.check(rows)


def fingerprint(name: str, split: str) -> str:
    """Return "rows:" and the digest of a split's rows, which is the same for all sources.

    A process reads unchanged files once.
    """
    states = ((path, *state_of(path)) for path in locate(name, split).paths)
    return f"{ROWS}{_digest(name, split, *states)}"


@cache
def _digest(name: str, split: str, *_states: object) -> str:
    return locate(name, split).digest


@dataclass(frozen=True)
class PairFile:
    """Pairs from a .tsv, .csv, .jsonl (plain or .gz) or .parquet file with named columns, or a data set of the Hub.

    Args:
        file: Path, absolute or relative to the current directory or to $CSE_DATA. Or "hf:owner/name", optionally with
            ":config" and "@revision".
        first: Column of the first sentence.
        second: Column of the second.
        score: Column of the gold score. Without it, scores are NaN.
        subset: Column that divides the pairs into subsets. Without it, all pairs are in the subset "".
        split: Split of a data set of the Hub.
    """

    file: str
    first: Column
    second: Column
    score: Column | None = None
    subset: Column | None = None
    split: str = "test"

    @property
    def pairs(self) -> list[Pair]:
        """The pairs, in the order of the file.

        Raises:
            CseError: If the file or a row is malformed, or it has no rows.
            MissingError: If the file does not exist.
        """
        return self._read[0]

    def scored(self) -> list[Pair]:
        """Return the pairs. Raise `CseError` if a subset has no correlation: only one pair, or only one score."""
        pairs, places = self._read
        subsets: dict[str, list[float]] = {}
        for pair in pairs:
            subsets.setdefault(pair.subset, []).append(pair.score)
        _require_ranks(next(iter(places.values())), [pair.score for pair in pairs])
        for name, scores in subsets.items():
            _require_ranks(f"{places[name]}: subset {name!r}", scores)
        return pairs

    def fingerprints(self, split: str) -> dict[str, str]:
        """Return "file/split" → "rows:" and the digest of the pairs, the same for a file and for its `.gz`."""
        rows = repr([tuple(pair) for pair in self.pairs])  # with the limits of each cell
        return {f"{self.file}/{split}": f"{ROWS}{hashlib.sha256(rows.encode()).hexdigest()}"}

    @cached_property
    def _read(self) -> tuple[list[Pair], dict[str, str]]:
        """Return the pairs, and subset → place of its first row."""
        columns = [column for column in (self.first, self.second, self.score, self.subset) if column is not None]
        for one, other in combinations(columns, 2):
            if one.name == other.name:
                both = f"{one.parameter} and {other.parameter} both name the column '{one.name}'"
                raise CseError(both, "use a different column for each", code="data.same_column")
        if self.file.startswith(HUB):
            from registry.resources.catalog.hub_sets import open_hub_set

            opened = open_hub_set(self.file, self.split)
            where = f"{self.file}, split '{self.split}'"
            table: Table = Rows(where, opened.select_columns, opened.column_names, typed=True)
        else:
            table = _own_file(self.file)
        pairs: list[Pair] = []
        places: dict[str, str] = {}
        blank = ""
        for record in (Record(table, *row) for row in table.read(columns)):
            if all(cell == "" for cell in record.cells):  # an error unless it is the end of the file
                blank = blank or record.location
                continue
            if blank:
                raise CseError(f"{blank}: empty line", "remove it", code="data.malformed_row")
            named = "" if self.subset is None else _sentence(record, self.subset, record.cells[-1])
            pairs.append(_pair(record, columns[: 2 + (self.score is not None)], named))
            places.setdefault(named, record.location)
        if not pairs:
            where = table.where if table.location(1).endswith("row 1") else table.location(1)
            raise CseError(f"{where}: the file has no pairs", "put one pair in each row", code="data.no_rows")
        return pairs, places


def require_one(owner: str, dataset: str | None, file: str | None) -> None:
    """Raise `CseError` unless exactly one of `dataset` and `file` is given."""
    if (dataset is None) == (file is None):
        found = "neither `dataset` nor `file`" if file is None else f"both dataset '{dataset}' and file '{file}'"
        raise CseError(
            f"{owner}: {found}", "set either `dataset` (see `cse data list`) or `file`", code="data.dataset_or_file"
        )


def _own_file(file: str) -> Table:
    found = own_file(file)
    if found is not None:
        if not names_a_file(found.name) or File(found).format == ".txt":
            raise CseError(
                f"{found}: cannot read a table of pairs from '{found.name}'",
                f"use the suffix of its format: {', '.join(FORMATS[1:4])} (plain or .gz) or .parquet",
                code="data.unsupported_format",
            )
        return File(found)
    action = "give an existing path, absolute or relative to the current directory or to $CSE_DATA"
    return File(require_own_file(file, "pair file", action))


def _require_ranks(where: str, scores: Sequence[float]) -> None:
    if len(scores) == 1:
        raise CseError(
            f"{where}: only one pair, but a correlation needs two", "add pairs with other scores", code="data.one_pair"
        )
    if min(scores) == max(scores):
        raise CseError(
            f"{where}: all {len(scores)} scores are {scores[0]:g}, so there is no correlation",
            "check which column contains the score",
            code="data.one_score",
        )


def _pair(record: Record, columns: Sequence[Column], subset: str) -> Pair:
    """Return the pair in a row with two sentences and, if there are three columns, a score."""
    first, second = (_sentence(record, column, cell) for column, cell in zip(columns[:2], record.cells, strict=False))
    return Pair(subset, _number(record, columns[2], record.cells[2]) if len(columns) > 2 else math.nan, first, second)


def _sentence(record: Record, column: Column, cell: object) -> str:
    if not isinstance(cell, str):
        wrong = f"is {shown(cell)}, not text"
    elif not cell.strip():
        wrong = "is empty"
    elif not cell.isascii() and any("\ud800" <= character <= "\udfff" for character in cell):
        raise CseError(
            f"{record.location}: '{column.name}' contains half a character (a lone surrogate)",
            "correct the encoding of the file",
            code="data.invalid_cell",
        )
    else:
        return cell
    raise CseError(
        f"{record.location}: '{column.name}' {wrong}", "write the sentence, or remove the row", code="data.invalid_cell"
    )


def _number(record: Record, column: Column, cell: object) -> float:
    typed = record.table.typed and column.parameter != ""  # files of the catalog can contain numbers as text
    allowed = isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) if typed else True
    try:
        value = float(str(cell)) if allowed and "_" not in str(cell) else math.nan  # float("1_0") is 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        found = "empty" if cell == "" else shown(cell)
        if typed and isinstance(cell, str):
            found = f"the text {cell!r}"[:80]
        raise CseError(
            f"{record.location}: '{column.name}' is {found}, not a finite number", _SCORE, code="data.invalid_cell"
        )
    return value
