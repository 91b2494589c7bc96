"""Training text of a recipe as memory-mapped columns: catalog data sets, `hf:` data sets and files of the user.

The text is read once by the builders of `datasets` and written to an Arrow file of the columns in use. A second start
maps that file. Blank rows are skipped and counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from cse_cli.core import paths
from cse_cli.core.formatting import counted
from cse_cli.data.cache import Facts, Progress, cached, noted_facts
from cse_cli.data.columns import BLOCK, ColumnMaker, Making, in_order
from cse_cli.data.files import TextFiles, as_tables, find_files, open_files, without_blanks
from cse_cli.data.tokens import Column, read_arrow, tokenize, write_arrow
from cse_cli.recipe.schema import Data
from registry.errors import CseError, suggestion
from registry.paths import state_of
from registry.resources import catalog
from registry.resources.hub_sets import HubSet
from registry.resources.rows import Source
from registry.tokens import Vocabulary

VERSION = "5"
"""Part of the key of every stored text. Raise it if the same files give other rows or facts."""


class Content(BaseModel, frozen=True):
    """Digests and counts of the rows of a part, which are noted with its Arrow file.

    Args:
        columns: Digest of the cells of each column and their lengths, blank rows excluded.
        blank: Number of blank rows, which are skipped.
        rows: Number of other rows.
    """

    columns: dict[str, str]
    blank: int
    rows: int


def store(path: Path, columns: Sequence[str], tables: Callable[[], Iterable[Any]]) -> tuple[Any, Content]:
    """Return the rows of tables as a `datasets.Dataset` in an Arrow file. `tables` is called only if it is missing."""
    import pyarrow as pa

    def write(draft: Path) -> Facts:
        reader = RowReader(columns)
        write_arrow(draft, pa.schema([(name, pa.string()) for name in columns]), reader.read(tables()))
        return reader.content.model_dump()

    content = Content.model_validate(cached(path, write))
    return read_arrow(path), content


class RowReader:
    """Removes blank rows from tables and computes the digests of their content."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._each = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
        self._blank = self._rows = 0

    def read(self, tables: Iterable[Any]) -> Iterator[Any]:
        """Yield the tables without their blank rows."""
        import pyarrow.compute as pc

        for table in tables:
            kept = without_blanks(table)
            for name, (lengths, content) in self._each.items():  # independent of the size of the tables
                sizes = pc.binary_length(kept.column(name)).combine_chunks().to_numpy(zero_copy_only=False)
                lengths.update(sizes.astype("<i4").tobytes())
                content.update("".join(kept.column(name).to_pylist()).encode("utf-8", "surrogatepass"))
            self._blank += len(table) - len(kept)
            self._rows += len(kept)
            yield kept

    @property
    def content(self) -> Content:
        """Content of the rows read so far."""
        columns = {}
        for name, (lengths, cells) in self._each.items():
            columns[name] = hashlib.sha256(lengths.digest() + cells.digest()).hexdigest()
        return Content(columns=columns, blank=self._blank, rows=self._rows)


@dataclass(frozen=True)
class Part:
    """One data set, or the files of the user, before its rows are read.

    Its name is "dataset/split", or the path as written in the recipe. `tables` returns the rows of columns, blank rows
    included. Generated data sets have no paths. `layout` is everything else that decides the rows.
    """

    name: str
    columns: tuple[str, ...]
    tables: Callable[[Sequence[str]], Iterator[Any]]
    paths: tuple[Path, ...] = ()
    layout: str = ""
    source: Source | None = None


@dataclass(frozen=True)
class Text:
    """Rows of strings, which can be read repeatedly.

    Each part has a `datasets.Dataset` of its rows that are not blank, and their content. `rows` is the total after the
    limit.
    """

    parts: tuple[tuple[Any, Content], ...]
    columns: tuple[str, ...]
    rows: int
    notices: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the content, the columns and the limit."""
        return _fingerprint((content for _, content in self.parts), self.columns, self.rows)

    def numbered(self) -> np.ndarray:
        """Return (rows, columns) numbers, which are equal if two cells of any rows and columns are equal."""
        import pyarrow as pa

        chunks: list[Any] = []
        for name in self.columns:
            every = [chunk for rows, _ in self.parts for chunk in rows.data.column(name).chunks]
            chunks += pa.chunked_array(every, pa.string()).slice(0, self.rows).chunks
        together = pa.chunked_array(chunks, pa.string())
        numbers: np.ndarray = together.dictionary_encode().combine_chunks().indices.to_numpy(zero_copy_only=False)
        return numbers.reshape(len(self.columns), self.rows).T

    def cells(self, column: str) -> Iterator[str]:
        """Yield the cells of one column."""
        tables = chain.from_iterable(rows.with_format("arrow").iter(1024) for rows, _ in self.parts)
        return islice(chain.from_iterable(table.column(column).to_pylist() for table in tables), self.rows)

    def tokens(
        self, column: str, vocabulary: Vocabulary, max_length: int, progress: Progress | None = None
    ) -> Column[list[int]]:
        """Return the token ids of one column. They are computed at first use and cached."""
        made: list[Any] = []
        done = 0

        def report(rows: int, _: int) -> None:
            if progress is not None:
                progress(done + rows, self.rows)

        for rows, content in self.parts:
            used = min(self.rows - done, len(rows))
            if used > 0:
                made += tokenize(rows, used, column, content.columns[column], vocabulary, max_length, report)
                done += used
        return Column(made)

    def sentences(self, column: str) -> Column[str]:
        """Return one column for access by row."""
        return Column([rows.select_columns([column]) for rows, _ in self.parts])


def open_text(data: Data, columns: set[str], making: Making | None = None) -> Text:
    """Return the training text of `[data]` with the columns that views and augmenters read, after a check of its rows.

    Columns of `[data.columns]` are made if that was not done before.
    """
    found = _find(data, columns)
    stored, notices = [], []
    for part in found.parts:
        rows, content = _read_part(part, found.reads)
        if found.makers:
            rows, content = _with_made(rows, content, found, making or Making())
        stored.append((rows, content))
        if content.blank:
            notices.append(f"{part.name}: {counted(content.blank, 'blank row')} skipped")
    available = sum(content.rows for _, content in stored)
    if available == 0:
        raise CseError(f"'{data.named}' contains no sentences", "write one sentence per line", code="data.no_sentences")
    return Text(tuple(stored), found.columns, min(available, data.limit or available), tuple(notices))


def text_fingerprint(data: Data, columns: set[str]) -> str | None:
    """Return `open_text(data, columns).fingerprint`, with its errors, or None if a column is not made yet.

    Text that was read before is not opened.
    """
    found = _find(data, columns)
    contents = []
    for part in found.parts:
        facts = noted_facts(_arrow_path(part, found.reads)) if part.paths else None
        content = _read_part(part, found.reads)[1] if facts is None else Content.model_validate(facts)
        if found.makers:
            facts = noted_facts(found.made_path(content))
            if facts is None:
                return None
            content = Content.model_validate(facts)
        contents.append(content)
    rows = sum(content.rows for content in contents)
    return _fingerprint(contents, found.columns, min(rows, data.limit or rows))


@dataclass(frozen=True)
class _Found:
    """Data sets or files of a recipe, and the columns that generators make, each after that which it is made from.

    `columns` are those of the text, `reads` those of the data that are read, both sorted. Rows beyond `limit` are not
    made. All parts have it, because the number of rows that are not blank is unknown before.
    """

    parts: list[Part]
    makers: dict[str, ColumnMaker]
    columns: tuple[str, ...]
    reads: tuple[str, ...]
    limit: int | None

    def made_path(self, content: Content) -> Path:
        """Return the path of the Arrow file of a part with its made columns."""
        keys = [(name, maker.source, maker.key) for name, maker in self.makers.items()]
        read = sorted(content.columns.items())
        named = hashlib.sha256(repr((VERSION, read, self.columns, self.limit, keys)).encode()).hexdigest()[:32]
        return paths.cache() / "text" / f"{named}.arrow"


def _find(data: Data, columns: Iterable[str]) -> _Found:
    names = tuple(sorted(columns))
    parts = find_parts(data)
    for part in parts:
        check_columns(data, part, [name for name in names if name not in data.columns])
    makers = {name: ColumnMaker(data.columns[name]) for name in in_order(data.columns, {*names})}
    reads = tuple(sorted({*names, *(maker.source for maker in makers.values())} - makers.keys()))
    for part in parts:
        check_columns(data, part, reads)
        if twice := makers.keys() & {*part.columns}:
            raise CseError(
                f"'{part.name}' has the column '{min(twice)}', which [data.columns.{min(twice)}] makes, too",
                f"use the column of the data: --unset data.columns.{min(twice)}",
                code="data.column_twice",
            )
    return _Found(parts, makers, names, reads, data.limit)


def _with_made(rows: Any, content: Content, found: _Found, making: Making) -> tuple[Any, Content]:
    """Return the rows of a part with the made columns, which are made one after the other, and their content."""
    import pyarrow as pa

    def tables() -> Iterator[Any]:
        count = min(len(rows), found.limit or len(rows))
        cells: dict[str, list[str]] = {}
        for name in found.reads:
            cells[name] = Column[str]([rows.select_columns([name])]).take(range(count))
        for name, maker in found.makers.items():
            cells[name] = maker.make(cells[maker.source], making)
        for start in range(0, count, BLOCK):
            part = slice(start, start + BLOCK)
            yield pa.table({name: pa.array(cells[name][part], pa.string()) for name in found.columns})

    extended, made = store(found.made_path(content), found.columns, tables)
    if not made.rows and content.rows:
        raise CseError(
            f"the generators of {', '.join(found.makers)} made no text: every cell is blank",
            "check their model and languages",
            code="data.blank_column",
        )
    return extended, made.model_copy(update={"blank": made.blank + content.blank})


def _fingerprint(contents: Iterable[Content], columns: tuple[str, ...], rows: int) -> str:
    cells = [[content.columns[name] for name in columns] for content in contents]
    return hashlib.sha256(repr((cells, columns, rows)).encode()).hexdigest()


def find_parts(data: Data) -> list[Part]:
    """Return the data sets or files that a recipe names. Only the first lines of files are read."""
    if data.file:
        return [_files_part(data.named, open_files(find_files(data.files), data.column))]
    if repeated := {name for name in data.dataset if data.dataset.count(name) > 1}:
        message = f"[data] dataset: '{min(repeated)}' appears twice"
        raise CseError(message, "list each data set once", code="data.repeated_dataset")
    return [_hub_part(name, data) if name.startswith("hf:") else _catalog_part(name, data) for name in data.dataset]


def check_columns(data: Data, part: Part, columns: Sequence[str]) -> None:
    """Raise `CseError` if a column does not exist. The message explains how to get it."""
    missing = [name for name in columns if name not in part.columns]
    if not missing:
        return
    action = "use another column in the recipe's view, or add this one to the data"
    if missing == ["translation"]:
        action = "add [data.columns.translation] to the recipe, which makes it: cse show translate"
    elif missing == ["text"] and part.source is None:
        action = "set `data.column` to the column that contains the text"
    raise CseError(
        f"{'file' if data.file else 'dataset'} '{part.name}' has no column '{missing[0]}'."
        f"{suggestion(missing[0], part.columns)} Its columns: {', '.join(part.columns)}",
        action,
        code="data.unknown_column",
    )


def _files_part(name: str, files: TextFiles) -> Part:
    return Part(
        name,
        tuple(files.columns),
        lambda columns: files.select(columns).tables(),
        files.paths,
        repr((files.format, sorted(files.columns.items()))),
    )


def _hub_part(name: str, data: Data) -> Part:
    found = HubSet.parse(name).files(data.split)
    columns = {column: column for column in found.columns}
    if data.column is not None and data.column in columns:
        columns["text"] = data.column
    files = TextFiles(found.paths, found.builder, columns, found.options)
    return _files_part(f"{name}/{data.split}", files)


def _catalog_part(name: str, data: Data) -> Part:
    """Return the split of a catalog entry."""
    name, source = f"{name}/{data.split}", catalog.locate(name, data.split)

    def tables(columns: Sequence[str]) -> Iterator[Any]:
        return as_tables(source.read(columns), columns)

    return Part(name, source.columns, tables, source.paths, repr(source.tables), source)


def _read_part(part: Part, columns: Sequence[str]) -> tuple[Any, Content]:
    """Return the rows of a part, from its Arrow file if it has files, else from memory."""
    import datasets
    import pyarrow as pa

    if part.paths:
        rows, content = store(_arrow_path(part, columns), columns, lambda: part.tables(columns))
    else:  # generated again at every start, because a change of the generator would not be noticed
        reader, schema = RowReader(columns), pa.schema([(name, pa.string()) for name in columns])
        rows = datasets.Dataset(pa.concat_tables([schema.empty_table(), *reader.read(part.tables(columns))]))
        content = reader.content
    if part.source is not None:
        part.source.check(content.rows + content.blank)
    return rows, content


def _arrow_path(part: Part, columns: Sequence[str]) -> Path:
    """Return the path of the Arrow file. It changes when one of the part's files changes."""
    stats = [(str(path.absolute()), *state_of(path)) for path in part.paths]
    key = hashlib.sha256(repr((VERSION, stats, part.layout, columns)).encode()).hexdigest()[:32]
    return paths.cache() / "text" / f"{key}.arrow"
