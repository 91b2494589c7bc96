"""Sentence pairs from a file of the user's own, every row checked."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from registry.catalogue.find import data_folder, own_file
from registry.catalogue.formats import file_format, open_bytes
from registry.catalogue.reading import Pair
from registry.catalogue.records import Column, Record, records, shown, typed
from registry.errors import CseError, MissingError, suggestion

_SCORE = "write a number with a decimal point and without quotes, or drop the row"


@dataclass(frozen=True)
class PairFile:
    """Pairs in a .tsv, .csv, .jsonl (plain or .gz) or .parquet with named columns.

    Args:
        file: Path; a relative one counts from the current folder, then from $CSE_DATA.
        first: Column of the first sentence.
        second: Column of the second.
        score: Column of the gold score; without one, scores are NaN.
        subset: Column that divides the pairs into subsets; without one, all belong to the subset "".
    """

    file: str
    first: Column
    second: Column
    score: Column | None = None
    subset: Column | None = None

    @cached_property
    def path(self) -> Path:
        """Where the file lies.

        Raises:
            MissingError: There is no such file.
        """
        found = own_file(self.file)
        if found is not None:
            return found
        folder, wanted = data_folder(), Path(self.file).expanduser()
        looked = "" if wanted.is_absolute() else " here" if folder is None else f" here or below CSE_DATA ({folder})"
        near = [place / wanted.parent for place in (Path(), folder) if place is not None]
        names = [each.name for place in near if place.is_dir() for each in place.iterdir() if each.is_file()]
        raise MissingError(
            f"no pair file at {self.file}{looked}.{suggestion(wanted.name, names)}",
            "give `file` a path that exists; a relative one counts from the current folder, then from $CSE_DATA",
        )

    @property
    def pairs(self) -> list[Pair]:
        """The pairs, in the order of the file.

        Raises:
            CseError: The file or a row is malformed, or it has no rows.
            MissingError: There is no such file.
        """
        return self._read[0]

    def scored(self) -> list[Pair]:
        """Return the pairs, if their scores can be correlated with something.

        Raises:
            CseError: As `pairs`; or a subset has one pair only, or the same score throughout.
        """
        pairs, places = self._read
        subsets: dict[str, list[float]] = {}
        for pair in pairs:
            subsets.setdefault(pair.subset, []).append(pair.score)
        _demand_ranks(next(iter(places.values())), [pair.score for pair in pairs])
        for name, scores in subsets.items():
            _demand_ranks(f"{places[name]}: subset {name!r}", scores)
        return pairs

    def fingerprints(self, split: str) -> dict[str, str]:
        """Return "file/split" → SHA-256 of the content, the same for a file and for its `.gz`."""
        digest = hashlib.sha256()
        try:
            with open_bytes(self.path) as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except (EOFError, OSError, zlib.error) as error:
            raise CseError(f"{self.path}: cannot be read to its end: {error}", "fetch the file again") from error
        return {f"{self.file}/{split}": digest.hexdigest()}

    @cached_property
    def _read(self) -> tuple[list[Pair], dict[str, str]]:
        """Return the pairs, and where each subset begins."""
        columns = [column for column in (self.first, self.second, self.score, self.subset) if column is not None]
        _demand_different(columns)
        pairs: list[Pair] = []
        places: dict[str, str] = {}
        for record in records(self.path, columns):
            pairs.append(self._pair(record))
            places.setdefault(pairs[-1].subset, record.place)
        if not pairs:
            where = f"{self.path}{'' if file_format(self.path) == '.parquet' else ':1'}"
            raise CseError(f"{where}: the file has no pairs", "put one pair in each row")
        return pairs, places

    def _pair(self, record: Record) -> Pair:
        cells = iter(record.cells)
        first, second = (_text(record.place, column, next(cells)) for column in (self.first, self.second))
        score = math.nan if self.score is None else _number(record.place, self.score, next(cells), typed(self.path))
        subset = "" if self.subset is None else _text(record.place, self.subset, next(cells))
        return Pair(subset, score, first, second)


def demand_one(owner: str, dataset: str | None, file: str | None) -> None:
    """Refuse neither and both.

    Raises:
        CseError: `owner` does not read exactly one of the two.
    """
    if (dataset is None) == (file is None):
        found = "neither `dataset` nor `file`" if file is None else f"both dataset '{dataset}' and file '{file}'"
        raise CseError(f"{owner}: {found}", "name a data set of `cse data list`, or a file of your own")


def _demand_different(columns: Sequence[Column]) -> None:
    """Refuse one column in two places: its sentences would be compared with themselves."""
    for place, column in enumerate(columns):
        for other in columns[:place]:
            if column.name == other.name:
                both = f"{other.parameter} and {column.parameter} both name the column '{column.name}'"
                raise CseError(both, "name a column of its own for each")


def _demand_ranks(where: str, scores: Sequence[float]) -> None:
    if len(scores) == 1:
        raise CseError(f"{where}: the only pair: a correlation needs two", "add pairs with other scores")
    if min(scores) == max(scores):
        same = f"this and all other scores, {len(scores)} together, are {scores[0]:g}"
        raise CseError(f"{where}: {same}: nothing to rank", "check which column holds the score")


def _text(place: str, column: Column, cell: object) -> str:
    if not isinstance(cell, str):
        raise CseError(f"{place}: '{column.name}' is {shown(cell)}, not text", "write the sentence, or drop the row")
    if not cell.strip():
        raise CseError(f"{place}: '{column.name}' is empty", "write the sentence, or drop the row")
    if not cell.isascii() and any("\ud800" <= character <= "\udfff" for character in cell):
        raise CseError(f"{place}: '{column.name}' holds half a character (a lone surrogate)", "write the file anew")
    return cell


def _number(place: str, column: Column, cell: object, is_typed: bool) -> float:
    allowed = isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) if is_typed else True
    try:
        value = float(str(cell)) if allowed and "_" not in str(cell) else math.nan  # float("1_0") is 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        found = "empty" if cell == "" else shown(cell)
        if is_typed and isinstance(cell, str):
            found = f"the text {cell!r}"[:80]
        raise CseError(f"{place}: '{column.name}' is {found}, not a finite number", _SCORE)
    return value
