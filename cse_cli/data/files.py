"""Files of text as Arrow tables: their columns by our names, every cell a string, checked row by row."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from registry.catalogue import Column, File
from registry.catalogue.find import data_folder
from registry.catalogue.hub_sets import quiet_datasets
from registry.catalogue.sources import require_columns
from registry.errors import CseError, MissingError, UnknownNameError, suggestion
from registry.paths import expand_user, is_dir, is_file

ROWS = 8192
"""Rows of a table: bounds memory while reading, and the record batches of what is written from them."""

MOST_ENTRIES = 100_000
"""Files and folders that a folder or a glob is looked for in: half a second. A whole disk took more than 20."""

_FORMATS = {".txt": "text", ".tsv": "tsv", ".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_KNOWN = ", ".join(_FORMATS) + " (plain or .gz)"


def text_format(path: Path | str) -> str | None:
    """Return how a file of training text is read, by its name, `.gz` set aside: text, tsv, csv, json or parquet."""
    name = str(path)
    return _FORMATS.get(Path(name if name.endswith(".parquet.gz") else name.removesuffix(".gz")).suffix)


def find_files(patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that paths, folders and globs name, in this order, those of one pattern by name.

    A relative pattern counts from the current folder, then from `$CSE_DATA`.

    Raises:
        MissingError: A pattern names none.
        CseError: A file is of a format that cannot be read.
    """
    data = data_folder()
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = expand_user(Path(pattern))
        files = _matching(path.absolute()) or (_matching(data / path) if data is not None else [])
        if not files:
            what = "no file that can be read in it" if is_dir(path) else "no such file"
            below = "" if data is None or path.is_absolute() else f", nor below CSE_DATA ({data})"
            raise MissingError(
                f"{path.absolute()}: {what}{below}", f"`[data] file` is a path, a folder or a glob of {_KNOWN} files"
            )
        found |= dict.fromkeys(files)
    for path in found:
        if text_format(path) is None:
            raise CseError(f"{path}: cannot tell how to read '{path.name}'", f"training text is a {_KNOWN} file")
    return tuple(found)


def _matching(path: Path) -> list[Path]:
    if is_dir(path):
        demand_few_entries(path, None)
        found = (p for p in path.rglob("*") if p.is_file() and text_format(p))
        return sorted(p for p in found if not any(part.startswith((".", "_")) for part in p.relative_to(path).parts))
    if is_file(path):
        return [path]
    wild = next((number for number, part in enumerate(path.parts) if set(part) & set("*?[")), len(path.parts))
    folder, pattern = Path(*path.parts[:wild]), path.parts[wild:]
    if not pattern:
        return []
    demand_few_entries(folder, None if "**" in pattern else len(pattern))
    try:
        return sorted(p for p in folder.glob(str(Path(*pattern))) if p.is_file())
    except (OSError, ValueError):  # no name of a file, no pattern, or folders that cannot be looked through
        return []


def demand_few_entries(
    folder: Path, levels: int | None, todo: str = "name a folder that holds the text and little else"
) -> None:
    """Refuse to look through very much, such as the whole disk.

    Args:
        folder: Where a pattern begins.
        levels: How deep it goes; None to the end.
        todo: What the message advises.

    Raises:
        CseError: There are more files and folders than `MOST_ENTRIES`.
    """
    seen, start = 0, len(folder.parts)
    for here, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MOST_ENTRIES:
            raise CseError(f"{folder}: more than {MOST_ENTRIES:,} files and folders would be looked through", todo)
        if levels is not None and len(Path(here).parts) - start >= levels - 1:
            folders.clear()


@dataclass(frozen=True)
class _Place:
    """Where the rows of a table stand."""

    where: str
    first: int | None
    lines: bool

    def of(self, index: int) -> str:
        """Return `path:line`, or what is known."""
        if self.first is None:
            return self.where
        return f"{self.where}:{self.first + index}" if self.lines else f"{self.where}: row {self.first + index}"


@dataclass(frozen=True)
class TextFiles:
    """Files of one format with the same columns, one after the other.

    Args:
        paths: Local paths, or addresses that fsspec opens.
        format: As `text_format` has it.
        columns: Our name → theirs; an empty name means there is none, and every cell is empty.
        header: Column names of a `.tsv`, in order.
        headed: Whether the first line of a `.tsv` is the header.
        options: Further settings of the builder of `datasets`.
    """

    paths: tuple[Path | str, ...]
    format: str
    columns: Mapping[str, str]
    header: tuple[str, ...] = ()
    headed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def require(self, wanted: Sequence[str]) -> TextFiles:
        """Return the same files with the columns wanted alone.

        Raises:
            UnknownNameError: They lack one.
        """
        require_columns(str(self.paths[0]), self.columns, wanted)
        return replace(self, columns={name: self.columns[name] for name in wanted})

    def tables(self) -> Iterator[Any]:
        """Yield the rows as tables of our columns, blank ones among them.

        Raises:
            CseError: A file or a row is malformed; the message names file and line, or row where lines are no rows.
        """
        for path in self.paths:
            first = 1
            for raw in _read(path, self.format, self._options()):
                yield self.clean(raw, str(path), first)
                first += len(raw)

    def stream(self, paths: Sequence[Path | str]) -> Any:
        """Return a `datasets.IterableDataset` of raw tables over some of the files, a shard each, in this order."""
        return read_guarded(paths[0], lambda: _open(paths, self.format, self._options()))

    def clean(self, raw: Any, where: str, first: int | None = None) -> Any:
        """Return our columns of a table as strings; blank lines become rows of empty cells.

        Args:
            raw: Rows as they are in the files.
            where: What to call them in messages.
            first: Number of the first row in its file, from 1; None where it is not known.

        Raises:
            CseError: A row is malformed.
        """
        import pyarrow as pa

        place = _Place(where, first, self.format in ("text", "tsv"))
        if self.format in ("text", "tsv"):
            lines = _without_bom(raw.column(0)) if first in (1, None) else raw.column(0)
            cells = {"text": lines} if self.format == "text" else self._split(lines, place)
        else:
            cells = {name: raw.column(name) for name in self.columns.values() if name}
        rows = len(next(iter(cells.values()))) if cells else len(raw)
        made = {
            ours: _strings(cells[theirs], theirs, place) if theirs else pa.array([""] * rows, pa.string())
            for ours, theirs in self.columns.items()
        }
        return pa.table(made)

    def _options(self) -> dict[str, Any]:
        if self.format == "parquet":
            return {"columns": [name for name in self.columns.values() if name], **self.options}
        return dict(self.options)

    def _split(self, lines: Any, place: _Place) -> dict[str, Any]:
        """Return the cells of lines, column by column.

        The csv builder of `datasets` (5.2), asked for TABs and no quotes, was measured to fill rows that are too
        short with empty cells, and to shift every column by one where the first row is too long, silently in both.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.headed and place.first == 1:
            lines, place = lines.slice(1), replace(place, first=2)
        elif self.headed and place.first is None:  # a stream does not say where a file begins
            lines = lines.filter(pc.not_equal(lines, "\t".join(self.header)))
        lists = pc.split_pattern(lines, "\t")
        blank = _blank(lines)
        wrong = pc.and_(pc.not_equal(pc.list_value_length(lists), len(self.header)), pc.invert(blank))
        if (index := pc.index(wrong, True).as_py()) >= 0:
            found = len(lists[index])
            raise CseError(
                f"{place.of(index)}: {found} column{'s'[: found != 1]} where {len(self.header)} are expected",
                "columns are separated by one TAB each, and quotes are ordinary characters",
            )
        if pc.any(blank).as_py():
            lists = pc.if_else(blank, pa.scalar([""] * len(self.header), lists.type), lists)
        return {name: pc.list_element(lists, index) for index, name in enumerate(self.header)}


def open_files(paths: Sequence[Path], column: str | None) -> TextFiles:
    """Return the user's own files.

    Args:
        paths: As `find_files` returns them.
        column: Their column that is read as `text`; None is "text".

    Raises:
        CseError: They are of several formats, their columns differ, or there is no such column.
    """
    formats = {text_format(path): path for path in paths}
    if len(formats) > 1:
        named = " and ".join(path.name for path in formats.values())
        raise CseError(f"`[data] file` names files of several formats: {named}", "give files of one format")
    kind = text_format(paths[0]) or "text"
    header = _names(paths[0], kind)
    for path in paths[1:] if kind in ("tsv", "csv") else ():
        if (other := _names(path, kind)) != header:
            raise CseError(
                f"{path}: its columns are {', '.join(other)} where {paths[0].name} has {', '.join(header)}",
                "files that are read together have the same header",
            )
    columns = {name: name for name in header}
    if column is not None:
        if column not in header:
            raise UnknownNameError(
                f"{paths[0]}: no column '{column}'.{suggestion(column, header)}",
                f"give `data.column` one of {', '.join(header)}",
            )
        columns["text"] = column
    return TextFiles(tuple(paths), kind, columns, header)


def without_blanks(table: Any) -> Any:
    """Return the rows of which no cell is blank."""
    import pyarrow.compute as pc

    blank = None
    for column in table.columns:
        found = _blank(column)
        blank = found if blank is None else pc.or_(blank, found)
    return table if blank is None or not pc.any(blank).as_py() else table.filter(pc.invert(blank))


def _blank(cells: Any) -> Any:
    """Return which cells are empty, or nothing but white space."""
    import pyarrow.compute as pc

    return pc.equal(pc.utf8_trim_whitespace(cells), "")


def as_tables(rows: Iterable[Sequence[str]], columns: Sequence[str]) -> Iterator[Any]:
    """Yield rows of text as tables."""
    import pyarrow as pa

    source = iter(rows)
    while chunk := list(islice(source, ROWS)):
        cells = zip(*chunk, strict=True)
        yield pa.table({name: pa.array(column, pa.string()) for name, column in zip(columns, cells, strict=True)})


def _names(path: Path, kind: str) -> tuple[str, ...]:
    """Return the names of a file's columns.

    Raises:
        CseError: The file cannot be read, or its first line does not name the columns of a `.tsv`.
    """
    if kind == "text":
        return ("text",)
    if kind == "csv":
        return File(path).header()
    first = next(_read(path, kind, {}), None)
    if kind != "tsv":
        return ("text",) if first is None else tuple(first.column_names)
    line = "" if first is None else _without_bom(first.column(0))[0].as_py()
    names = tuple(line.split("\t"))
    if len(set(names)) < len(names) or "" in names:
        raise CseError(
            f"{path}:1: the first line must name the columns, each once; it is {line!r}",
            'for one sentence a line, name the file .txt; otherwise add a header such as "text<TAB>translation"',
        )
    return names


def _read(path: Path | str, kind: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the rows of one file as tables."""
    if kind == "csv" and not options:
        yield from _csv(Path(path))
        return
    tables = read_guarded(path, lambda: iter(_open([path], kind, options).iter(ROWS))) or iter(())
    while (table := read_guarded(path, lambda: next(tables, None))) is not None:
        yield table


def _open(paths: Sequence[Path | str], kind: str, options: Mapping[str, Any]) -> Any:
    """Return a stream of Arrow tables by a builder of `datasets`; nothing is written to its cache."""
    datasets = quiet_datasets()
    builder = "text" if kind == "tsv" else kind
    settings = {"encoding": "utf-8-sig"} if builder == "text" else {}
    files = {"train": [str(path) for path in paths]}
    made = datasets.load_dataset(builder, data_files=files, split="train", streaming=True, **settings, **options)
    return made.with_format("arrow")


def _csv(path: Path) -> Iterator[Any]:
    """Yield tables of a `.csv` by our own reader: that of `datasets` fills short rows silently, and names no line."""
    header = File(path).header()
    rows = (cells for _, cells in File(path).read([Column("", name) for name in header]))
    yield from as_tables(rows, header)


def read_guarded(path: Path | str, act: Any) -> Any:
    """Return what `act` reads.

    Raises:
        CseError: A file cannot be read; one message whatever the builder, its codec or the hub's client raised.
        MissingError: It is streamed from the hub, which does not answer.
    """
    import httpx2
    import pyarrow as pa

    try:
        return act()
    except CseError:
        raise
    except UnicodeDecodeError as error:
        line = _undecodable(Path(path))
        raise CseError(f"{path}{line}: not UTF-8: {error.reason}", "convert the file to UTF-8") from error
    except httpx2.HTTPError as error:  # of the hub's client, and no OSError
        raise MissingError(
            f"{path}: the hub does not give it: {error}", "check the connection; resume the run"
        ) from error
    except StopIteration:  # the json builder, at an empty file
        return None
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise CseError(f"{path}: cannot be read to its end: {reason}", "write or fetch the file again") from error


def _undecodable(path: Path) -> str:
    import gzip

    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f":{number}"
    return ""


def _without_bom(lines: Any) -> Any:
    """Return lines without the byte order mark before the first, which the builder leaves in a `.gz`."""
    import pyarrow as pa

    if not len(lines) or not (lines[0].as_py() or "").startswith("\ufeff"):
        return lines
    return pa.chunked_array([pa.array([lines[0].as_py()[1:]], pa.string()), *lines.slice(1).chunks])


def _strings(column: Any, name: str, place: _Place) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind) and len(column):
        raise CseError(f"{place.of(0)}: column '{name}' has no value", "give every row a text")
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise CseError(f"{place.where}: column '{name}' holds {kind}, not text", "name a column of strings")
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise CseError(f"{place.of(row)}: column '{name}' has no value", "give every row a text, or remove the row")
    return column.cast(pa.string())
