"""Text files as Arrow tables with checked rows. All cells are strings."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

from cse_cli.core.paths import check_entries
from registry.errors import CseError, MissingError, UnknownNameError, suggestion
from registry.paths import expand_user, is_dir, is_file
from registry.resources.catalog import data_folder, similar_files
from registry.resources.hub_sets import quiet_datasets, read_guarded
from registry.resources.rows import Column, File, lines

ROWS = 8192
"""Rows of a table. Bounds the memory."""


_FORMATS = {".txt": "text", ".tsv": "tsv", ".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_KNOWN = ", ".join(_FORMATS) + " (plain or .gz)"


def text_format(path: Path | str) -> str | None:
    """Return the format of a file by its name: text, tsv, csv, json, parquet or None. `.gz` is ignored."""
    name = str(path)
    return _FORMATS.get(Path(name if name.endswith(".parquet.gz") else name.removesuffix(".gz")).suffix)


def find_files(patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that match paths, directories and globs. The matches of one pattern are sorted by name.

    A relative pattern refers to the current directory, then to `$CSE_DATA`.
    """
    data = data_folder()
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = expand_user(Path(pattern))
        files = _matching(path.absolute()) or (_matching(data / path) if data is not None else [])
        if not files:
            what = "contains no text file" if is_dir(path) else "does not exist"
            also = "" if data is None or path.is_absolute() else f", nor does it below CSE_DATA ({data})"
            raise MissingError(
                f"file '{path.absolute()}' {what}{also}{similar_files(pattern)}",
                f"give a path, a directory or a glob of {_KNOWN} files",
                code="data.missing_file",
            )
        found |= dict.fromkeys(files)
    for path in found:
        if text_format(path) is None:
            raise CseError(f"file '{path}' has an unknown format", f"use a {_KNOWN} file", code="data.unknown_format")
    return tuple(found)


def _matching(path: Path) -> list[Path]:
    if is_dir(path):
        check_entries(path, None)
        found = (p for p in path.rglob("*") if p.is_file() and text_format(p))
        return sorted(p for p in found if not any(part.startswith((".", "_")) for part in p.relative_to(path).parts))
    if is_file(path):
        return [path]
    wild = next((number for number, part in enumerate(path.parts) if set(part) & set("*?[")), len(path.parts))
    folder, pattern = Path(*path.parts[:wild]), path.parts[wild:]
    if not pattern:
        return []
    check_entries(folder, None if "**" in pattern else len(pattern))
    try:
        return sorted(p for p in folder.glob(str(Path(*pattern))) if p.is_file())
    except (OSError, ValueError):  # a bad file name or pattern, or directories without permission
        return []


@dataclass(frozen=True)
class TextFiles:
    """Files of one format with the same columns, in order.

    `columns` maps a name here to that in the files. Cells are empty if the latter is. `options` are those of the
    builder of `datasets`.
    """

    paths: tuple[Path, ...]
    format: str
    columns: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    def select(self, columns: Sequence[str]) -> TextFiles:
        """Return the same files with only these columns."""
        return replace(self, columns={name: self.columns[name] for name in columns})

    def tables(self) -> Iterator[Any]:
        """Yield the rows as tables of strings, blank rows included."""
        for path in self.paths:
            if self.format == "text" and not self.options:
                yield from as_tables(((line,) * len(self.columns) for _, line in lines(path)), tuple(self.columns))
            elif self.format in ("tsv", "csv") and not self.options:
                cells = File(path).read([Column("", name) for name in self.columns.values()])
                yield from as_tables((row for _, row in cells), tuple(self.columns))
            else:
                yield from self._built(path)

    def _built(self, path: Path) -> Iterator[Any]:
        """Yield the rows of a file that a builder of `datasets` reads."""
        import pyarrow as pa

        options = dict(self.options)
        if self.format == "parquet":
            options["columns"] = [name for name in self.columns.values() if name]
        first = 1
        for raw in _read(path, self.format, options):
            yield pa.table(
                {
                    ours: _strings(raw.column(theirs), theirs, path, first, ours != "text")
                    if theirs
                    else pa.array([""] * len(raw), pa.string())
                    for ours, theirs in self.columns.items()
                }
            )
            first += len(raw)


def open_files(paths: Sequence[Path], column: str | None) -> TextFiles:
    """Return files of the user, found by `find_files`. `column` is the name of the column that is read as `text`."""
    formats = {text_format(path): path for path in paths}
    if len(formats) > 1:
        named = " and ".join(path.name for path in formats.values())
        raise CseError(
            f"`[data] file` matches files of several formats: {named}",
            "use files of one format",
            code="data.mixed_formats",
        )
    kind = text_format(paths[0]) or "text"
    for path in paths if kind == "text" else ():
        refuse_table(path)
    header = _names(paths[0], kind)
    for path in paths[1:] if kind in ("tsv", "csv") else ():
        if (other := _names(path, kind)) != header:
            raise CseError(
                f"file '{path}' has the columns {', '.join(other)}, but '{paths[0].name}' has {', '.join(header)}",
                "use files with the same header",
                code="data.mixed_columns",
            )
    columns = {name: name for name in header}
    if column is not None:
        if column not in header:
            raise UnknownNameError(
                f"file '{paths[0]}' has no column '{column}'.{suggestion(column, header)}",
                f"set `data.column` to one of {', '.join(header[:5])}",
                code="data.unknown_column",
            )
        columns["text"] = column
    return TextFiles(tuple(paths), kind, columns)


def without_blanks(table: Any) -> Any:
    """Return the rows without blank cells."""
    import pyarrow.compute as pc

    blank = reduce(pc.or_, map(_blank, table.columns))
    return table.filter(pc.invert(blank)) if pc.any(blank).as_py() else table


def _blank(cells: Any) -> Any:
    """Return a mask of the cells that are empty or contain only white space."""
    import pyarrow.compute as pc

    return pc.equal(pc.utf8_trim_whitespace(cells), "")


def as_tables(rows: Iterable[Sequence[str]], columns: Sequence[str]) -> Iterator[Any]:
    """Yield rows of strings as tables."""
    import pyarrow as pa

    source = iter(rows)
    while chunk := list(islice(source, ROWS)):
        cells = zip(*chunk, strict=True)
        yield pa.table({name: pa.array(column, pa.string()) for name, column in zip(columns, cells, strict=True)})


def _names(path: Path, kind: str) -> tuple[str, ...]:
    """Return the column names of a file. Raise `CseError` if it cannot be read, or has no header."""
    if kind in ("text", "tsv", "csv"):
        return File(path).header()
    first = next(_read(path, kind, {}), None)
    return ("text",) if first is None else tuple(first.column_names)


def _read(path: Path, kind: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the rows of one file as Arrow tables from a builder of `datasets`, without a copy in its cache."""
    datasets, files = quiet_datasets(), {"train": [str(path)]}

    def opened() -> Iterator[Any]:
        made = datasets.load_dataset(kind, data_files=files, split="train", streaming=True, **options)
        return iter(made.with_format("arrow").iter(ROWS))

    tables = read_guarded(path, opened) or iter(())
    while (table := read_guarded(path, lambda: next(tables, None))) is not None:
        yield table


def _strings(column: Any, name: str, path: Path, first: int, numbers: bool) -> Any:
    """Return a column as strings. Its first row is row `first` of the file. `numbers` allows labels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise CseError(
            f"{path}: row {first + row}: column '{name}' has no value",
            "give every row a string, or remove the row",
            code="data.missing_value",
        )
    readable = (pa.types.is_null, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not any(is_kind(kind) for is_kind in readable) and not (numbers and numeric):
        raise CseError(
            f"{path}: column '{name}' contains {kind}, not strings",
            "use a column of strings",
            code="data.not_strings",
        )
    return column.cast(pa.string())


LINES = 100
"""Number of first lines to look at."""
FEWEST = 3
"""Minimum number of lines of a table, with its header."""
_NAME = re.compile(r"\w[\w.-]*(?: \w[\w.-]*)?")
"""Name of a column: one or two words. In prose, a space follows the comma before the next part of a sentence."""


def refuse_table(path: Path) -> None:
    """Refuse a `.txt` file that contains a table with tabs, or with commas and a header. A training would read them.

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
