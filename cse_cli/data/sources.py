"""The training text a recipe names, as memory-mapped columns: catalogue data sets, `hf:` data sets, files of one's own.

What is named is read once, by the builders of `datasets`, into an Arrow file of the columns in use; a second start maps
that file. Every row has a text: blank ones are left out and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from cse_cli.core import paths as home
from cse_cli.data.files import TextFiles, as_tables, find_files, open_files, without_blanks
from cse_cli.data.tokens import Progress, TextColumn, TokenColumn, cache_error, join, tokenise
from cse_cli.recipe.schema import Data
from registry import catalogue
from registry.catalogue import Source
from registry.errors import CseError
from registry.paths import write_atomically
from registry.tokens import Vocabulary

VERSION = "1"
"""Part of every stored text's key: raise it when the same files make other rows."""


@dataclass(frozen=True)
class Part:
    """One data set, or the user's files, before its rows are read.

    Args:
        name: "dataset/split", or the path as the recipe writes it.
        columns: Columns it has.
        tables: Columns wanted → its rows, blank ones among them.
        paths: The files it is read from; none for what is generated.
        layout: What else decides the rows.
        source: Its catalogue entry's split.
        files: The same as shards of one format, where it is such.
    """

    name: str
    columns: tuple[str, ...]
    tables: Callable[[Sequence[str]], Iterator[Any]]
    paths: tuple[Path, ...] = ()
    layout: str = ""
    source: Source | None = None
    files: TextFiles | None = None


@dataclass(frozen=True)
class Stored:
    """The rows of a part, read.

    Args:
        rows: A `datasets.Dataset` of text cells; none is blank.
        digest: SHA-256 of the content, as `Source.digest` has it, blank rows included.
        columns: Column → digest of its cells, blank rows left out.
        blank: Rows left out.
    """

    rows: Any = field(repr=False)
    digest: str
    columns: dict[str, str]
    blank: int


@dataclass(frozen=True)
class Text:
    """Rows of text cells, read as often as asked.

    Args:
        parts: Where the rows come from, in order.
        columns: Columns asked for.
        rows: Rows in all, after the limit.
        digests: "dataset/split", or the file's path → SHA-256 of its content.
        notices: What the user should know of the rows.
    """

    parts: tuple[Stored, ...]
    columns: tuple[str, ...]
    rows: int
    digests: dict[str, str]
    notices: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the content, the columns and the limit."""
        identity = repr((list(self.digests.values()), self.columns, self.rows))
        return hashlib.sha256(identity.encode()).hexdigest()

    def cells(self, column: str) -> Iterator[str]:
        """Yield one column, row by row."""
        tables = chain.from_iterable(part.rows.with_format("arrow").iter(1024) for part in self.parts)
        return islice(chain.from_iterable(table.column(column).to_pylist() for table in tables), self.rows)

    def tokens(
        self, column: str, vocabulary: Vocabulary, max_length: int, progress: Progress | None = None
    ) -> TokenColumn:
        """Return one column's tokens, made at first use and kept in the cache."""
        done, made = 0, []
        for part, rows in self._shares():
            told = None if progress is None else _shifted(progress, done, self.rows)
            made.append(tokenise(part.rows, rows, column, part.columns[column], vocabulary, max_length, told))
            done += rows
        return TokenColumn(join(made))

    def sentences(self, column: str) -> TextColumn:
        """Return one column for access by row."""
        return TextColumn(join([part.rows.select_columns([column]) for part in self.parts]))

    def _shares(self) -> Iterator[tuple[Stored, int]]:
        """Yield each part and how many of its rows are used."""
        left = self.rows
        for part in self.parts:
            if left > 0:
                yield part, min(left, len(part.rows))
            left -= len(part.rows)


def open_text(data: Data, columns: set[str]) -> Text:
    """Return the training text, found, counted and checked.

    Args:
        data: What the recipe names.
        columns: Columns that views and augmenters read.

    Raises:
        CseError: Rows are missing or malformed, or a column is not there.
        MissingError: A data set is not on this machine and cannot be fetched.
    """
    wanted = tuple(sorted(columns))
    parts = named_parts(data)
    for part in parts:
        require(data, part, wanted)
    stored = [_stored(part, wanted) for part in parts]
    rows = sum(len(each.rows) for each in stored)
    if rows == 0:
        raise CseError(f"{data.named}: no sentences", "one sentence a line")
    notices = [
        f"{part.name}: {each.blank:,} blank {'line' if wanted == ('text',) else 'row'}{'s'[: each.blank != 1]} skipped"
        for part, each in zip(parts, stored, strict=True)
        if each.blank
    ]
    digests = {part.name: each.digest for part, each in zip(parts, stored, strict=True)}
    return Text(tuple(stored), wanted, min(rows, data.limit or rows), digests, tuple(notices))


def named_parts(data: Data) -> list[Part]:
    """Return what a recipe's `[data]` names; nothing but the first lines of files is read.

    Raises:
        CseError: It names nothing, or the same twice.
        MissingError: A data set is not on this machine and cannot be fetched.
    """
    if data.file and data.dataset:
        raise CseError("[data] names both `dataset` and `file`", "keep one of them")
    if data.file:
        return [_own(data)]
    if not data.dataset:
        raise CseError("[data] names neither `dataset` nor `file`", "`cse data list` shows the data sets")
    repeated = {name for name in data.dataset if data.dataset.count(name) > 1}
    if repeated:
        raise CseError(f"[data] dataset names {', '.join(sorted(repeated))} twice", "name each data set once")
    return [_of_hub(name, data) if name.startswith("hf:") else _of_catalogue(name, data) for name in data.dataset]


def require(data: Data, part: Part, columns: Sequence[str]) -> None:
    """Check that a part has the columns.

    Raises:
        CseError: It lacks one; the message says how to get it.
    """
    missing = [name for name in columns if name not in part.columns]
    if not missing:
        return
    asked = part.name.removesuffix(f"/{data.split}")
    own = part.source is None
    advice = (
        f"`cse data translate {asked} --model MODEL` makes it with a translation model"
        if missing == ["translation"]
        else "give `data.column` the column that holds the text"
        if missing == ["text"] and own
        else "name another column in the recipe's view, or add this one to the data"
    )
    raise CseError(
        f"{'file' if data.file else 'dataset'} '{part.name}' has no column {', '.join(map(repr, missing))}; "
        f"its columns are {', '.join(part.columns)}",
        advice,
    )


# --- what the rows are read from --------------------------------------------------------------------------------------


def _own(data: Data) -> Part:
    files = open_files(find_files(data.files), data.column)
    return _of_files(data.named, files)


def _of_files(name: str, files: TextFiles, source: Source | None = None) -> Part:
    return Part(
        name,
        tuple(files.columns),
        lambda wanted: files.require(wanted).tables(),
        tuple(path for path in files.paths if isinstance(path, Path)),
        repr((files.format, sorted(files.columns.items()), files.header, files.headed)),
        source,
        files,
    )


def _of_hub(name: str, data: Data) -> Part:
    from registry.catalogue.hub_sets import HubSet

    found = HubSet.parse(name).files(data.split, remote=bool(data.streaming))
    columns = {column: column for column in found.columns}
    if data.column is not None and data.column in columns:
        columns["text"] = data.column
    files = TextFiles(found.paths, found.builder, columns, found.columns, options=found.options)
    return _of_files(f"{name}/{data.split}", files)


def _of_catalogue(name: str, data: Data) -> Part:
    """Return a catalogue entry's split: by a builder where its files are plain, else by the catalogue's own reader."""
    source = catalogue.locate(name, data.split)
    if (files := plain_files(source)) is not None:
        return _of_files(f"{name}/{data.split}", files, source)
    return Part(
        f"{name}/{data.split}",
        source.columns,
        lambda wanted: as_tables(source.read(wanted), wanted),
        source.paths,
        repr(source.tables),
        source,
    )


def plain_files(source: Source) -> TextFiles | None:
    """Return a split's files as a builder reads them; None for archives, patterns and what is generated."""
    first = source.tables[0] if source.tables else None
    for table in source.tables:
        if not isinstance(table, catalogue.File) or not isinstance(first, catalogue.File):
            return None
        own = table.member or table.beside or table.constants or table.limit
        layout = table.layout
        if own or layout.pattern or layout.remove or layout.encoding.lower() != "utf-8":
            return None
        if (table.format, layout, table.columns) != (first.format, first.layout, first.columns):
            return None
    if not isinstance(first, catalogue.File) or first.format == ".csv":
        return None
    kind = {".txt": "text", ".tsv": "tsv", ".parquet": "parquet"}.get(first.format, "json")
    theirs = {name: first.layout.columns.get(name, name) for name in source.columns}
    header = tuple(source.columns)
    if kind == "text":
        theirs = {name: name and "text" for name in theirs}
    elif kind == "tsv" and first.layout.header:
        header = first.header()
    return TextFiles(source.paths, kind, theirs, header, first.layout.header)


# --- reading once -----------------------------------------------------------------------------------------------------


def _stored(part: Part, columns: Sequence[str]) -> Stored:
    """Return a part's rows from the Arrow file made of them, which is made if it is missing or damaged."""
    import datasets

    if not part.paths:
        return _generated(part, columns)
    stats = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in part.paths]
    key = hashlib.sha256(repr((VERSION, stats, part.layout, columns)).encode()).hexdigest()[:32]
    path = home.cache() / "text" / f"{key}.arrow"
    try:
        if (found := _kept(path)) is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if (found := _kept(path)) is None:  # another process may have made it while this one waited
                    found = _read(part, columns, path)
    except OSError as error:
        raise cache_error(path, error) from error
    digest, digests, blank, rows = found
    return Stored(datasets.Dataset.from_file(str(path)), *_checked(part, digest, digests, blank, rows))


def _kept(path: Path) -> tuple[str, dict[str, str], int, int] | None:
    import datasets
    import pyarrow as pa

    try:
        note = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        found = note["digest"], dict(note["columns"]), int(note["blank"]), int(note["rows"])
        return found if len(datasets.Dataset.from_file(str(path))) == found[3] else None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _read(part: Part, columns: Sequence[str], path: Path) -> tuple[str, dict[str, str], int, int]:
    import pyarrow as pa

    draft = path.with_suffix(".tmp")
    schema = pa.schema([(name, pa.string()) for name in columns])
    content = _Content(columns)
    with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for table in content.count(part.tables(columns)):
            writer.write_table(table.combine_chunks())
    draft.replace(path)
    digest, digests, blank, rows = content.found
    note = {"digest": digest, "columns": digests, "blank": blank, "rows": rows}
    write_atomically(path.with_suffix(".json"), json.dumps(note))
    return content.found


def _generated(part: Part, columns: Sequence[str]) -> Stored:
    """Return rows that are made anew at every start, in memory: nothing says whether a generator has changed."""
    import datasets
    import pyarrow as pa

    content = _Content(columns)
    made = list(content.count(part.tables(columns)))
    schema = pa.schema([(name, pa.string()) for name in columns])
    rows = datasets.Dataset(pa.concat_tables(made) if made else schema.empty_table())
    return Stored(rows, *_checked(part, *content.found))


def _checked(
    part: Part, digest: str, digests: dict[str, str], blank: int, rows: int
) -> tuple[str, dict[str, str], int]:
    if part.source is not None:
        part.source.check(rows + blank)
    return digest, digests, blank


class _Content:
    """Digests and counts of tables that pass by."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = [name for name in columns if name != "subset"]
        self.whole = hashlib.sha256()
        self.each = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
        self.blank = self.rows = 0

    def count(self, tables: Iterable[Any]) -> Iterator[Any]:
        """Yield the tables without their blank rows."""
        for table in tables:
            cells = [table.column(name).to_pylist() for name in self.columns]
            lines = cells[0] if len(cells) == 1 else map("\t".join, zip(*cells, strict=True))
            self.whole.update("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
            kept = without_blanks(table)
            for name, (lengths, content) in self.each.items():
                _feed(kept.column(name), lengths, content)
            self.blank += len(table) - len(kept)
            self.rows += len(kept)
            yield kept

    @property
    def found(self) -> tuple[str, dict[str, str], int, int]:
        """Digest of all rows, digests of the columns kept, blank rows, rows kept."""
        each = {
            name: hashlib.sha256(lengths.digest() + content.digest()).hexdigest()
            for name, (lengths, content) in self.each.items()
        }
        return self.whole.hexdigest(), each, self.blank, self.rows


def _feed(column: Any, lengths: Any, content: Any) -> None:
    """Feed the lengths and the bytes of text cells to digests, whatever chunks they come in."""
    import pyarrow.compute as pc

    lengths.update(pc.binary_length(column).combine_chunks().to_numpy(zero_copy_only=False).astype("<i4").tobytes())
    content.update("".join(column.to_pylist()).encode("utf-8", "surrogatepass"))


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)
