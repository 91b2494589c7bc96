"""The training text a recipe names, as memory-mapped columns: catalogue data sets, `hf:` data sets, files of one's own.

What is named is read once, by the builders of `datasets`, into an Arrow file of the columns in use; a second start maps
that file, once its checksum is right. Every row has a text: blank ones are left out and counted.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from cse_cli.core import paths
from cse_cli.data.files import TextFiles, as_tables, find_files, open_files, without_blanks
from cse_cli.data.tokens import Column, Progress, cache_error, checksum, join, tokenise, warn_of_damage
from cse_cli.recipe.schema import Data
from registry import catalogue
from registry.catalogue import Source
from registry.errors import CseError
from registry.paths import make_folder, write_atomically
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
class Content:
    """What the rows of a part hold.

    Args:
        digest: SHA-256 of the content, as `Source.digest` has it, blank rows included.
        columns: Column → digest of its cells, blank rows left out.
        blank: Rows left out.
        rows: Rows kept.
    """

    digest: str
    columns: dict[str, str]
    blank: int
    rows: int


@dataclass(frozen=True)
class Stored:
    """The rows of a part, read.

    Args:
        rows: A `datasets.Dataset` of text cells; none is blank.
    """

    rows: Any = field(repr=False)
    content: Content


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
        return _fingerprint(self.digests.values(), self.columns, self.rows)

    def cells(self, column: str) -> Iterator[str]:
        """Yield one column, row by row."""
        tables = chain.from_iterable(part.rows.with_format("arrow").iter(1024) for part in self.parts)
        return islice(chain.from_iterable(table.column(column).to_pylist() for table in tables), self.rows)

    def tokens(
        self, column: str, vocabulary: Vocabulary, max_length: int, progress: Progress | None = None
    ) -> Column[list[int]]:
        """Return one column's tokens, made at first use and kept in the cache."""
        done, made = 0, []
        for part, rows in self._shares():
            shown = None if progress is None else _shifted(progress, done, self.rows)
            digest = part.content.columns[column]
            made.append(tokenise(part.rows, rows, column, digest, vocabulary, max_length, shown))
            done += rows
        return Column(join(made))

    def sentences(self, column: str) -> Column[str]:
        """Return one column for access by row."""
        return Column(join([part.rows.select_columns([column]) for part in self.parts]))

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
        require_columns(data, part, wanted)
    stored = [_stored(part, wanted) for part in parts]
    rows = sum(len(each.rows) for each in stored)
    if rows == 0:
        raise CseError(f"{data.named}: no sentences", "one sentence a line")
    notices = [
        f"{part.name}: {blank:,} blank {'line' if wanted == ('text',) else 'row'}{'s'[: blank != 1]} skipped"
        for part, each in zip(parts, stored, strict=True)
        if (blank := each.content.blank)
    ]
    digests = {part.name: each.content.digest for part, each in zip(parts, stored, strict=True)}
    return Text(tuple(stored), wanted, min(rows, data.limit or rows), digests, tuple(notices))


def text_fingerprint(data: Data, columns: set[str]) -> str:
    """Return `open_text(data, columns).fingerprint`; text that was read before is not read again, not even its rows.

    Raises:
        CseError, MissingError: As `open_text`.
    """
    wanted = tuple(sorted(columns))
    parts = named_parts(data)
    for part in parts:
        require_columns(data, part, wanted)
    contents = [_content(part, wanted) for part in parts]
    rows = sum(content.rows for content in contents)
    return _fingerprint([content.digest for content in contents], wanted, min(rows, data.limit or rows))


def _fingerprint(digests: Iterable[str], columns: tuple[str, ...], rows: int) -> str:
    return hashlib.sha256(repr((list(digests), columns, rows)).encode()).hexdigest()


def named_parts(data: Data) -> list[Part]:
    """Return what a recipe's `[data]` names; nothing but the first lines of files is read.

    Raises:
        CseError: It names nothing, or the same twice.
        MissingError: A data set is not on this machine and cannot be fetched.
    """
    if data.file and data.dataset:
        raise CseError("[data] names both `dataset` and `file`", "keep one of them")
    if data.file:
        return [_files_part(data.named, open_files(find_files(data.files), data.column))]
    if not data.dataset:
        raise CseError("[data] names neither `dataset` nor `file`", "`cse data list` shows the data sets")
    repeated = {name for name in data.dataset if data.dataset.count(name) > 1}
    if repeated:
        raise CseError(f"[data] dataset names {', '.join(sorted(repeated))} twice", "name each data set once")
    return [_hub_part(name, data) if name.startswith("hf:") else _catalogue_part(name, data) for name in data.dataset]


def require_columns(data: Data, part: Part, columns: Sequence[str]) -> None:
    """Check that a part has the columns.

    Raises:
        CseError: It lacks one; the message says how to get it.
    """
    missing = [name for name in columns if name not in part.columns]
    if not missing:
        return
    advice = "name another column in the recipe's view, or add this one to the data"
    if missing == ["translation"]:
        name = part.name.removesuffix(f"/{data.split}")
        advice = f"`cse data translate {name} --model MODEL` makes it with a translation model"
    elif missing == ["text"] and part.source is None:
        advice = "give `data.column` the column that holds the text"
    raise CseError(
        f"{'file' if data.file else 'dataset'} '{part.name}' has no column {', '.join(map(repr, missing))}; "
        f"its columns are {', '.join(part.columns)}",
        advice,
    )


# --- what the rows are read from --------------------------------------------------------------------------------------


def _files_part(name: str, files: TextFiles, source: Source | None = None) -> Part:
    return Part(
        name,
        tuple(files.columns),
        lambda wanted: files.require(wanted).tables(),
        tuple(path for path in files.paths if isinstance(path, Path)),
        repr((files.format, sorted(files.columns.items()), files.header, files.headed)),
        source,
        files,
    )


def _hub_part(name: str, data: Data) -> Part:
    from registry.catalogue.hub_sets import HubSet

    found = HubSet.parse(name).files(data.split, remote=bool(data.streaming))
    columns = {column: column for column in found.columns}
    if data.column is not None and data.column in columns:
        columns["text"] = data.column
    files = TextFiles(found.paths, found.builder, columns, found.columns, options=found.options)
    return _files_part(f"{name}/{data.split}", files)


def _catalogue_part(name: str, data: Data) -> Part:
    """Return a catalogue entry's split: by a builder where its files are plain, else by the catalogue's own reader."""
    source = catalogue.locate(name, data.split)
    if (files := plain_files(source)) is not None:
        return _files_part(f"{name}/{data.split}", files, source)
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
    import pyarrow as pa

    if part.paths:
        path = _arrow_file(part, columns)
        try:
            if (content := _known_content(path)) is None:
                make_folder(path.parent)
                with FileLock(f"{path}.lock"):
                    if (content := _known_content(path)) is None:  # another process may have made it meanwhile
                        if path.exists():
                            warn_of_damage(str(path))
                        content = _write(part, columns, path)
        except OSError as error:
            raise cache_error(path, error) from error
        rows = datasets.Dataset.from_file(str(path))
    else:  # made anew at every start, in memory: nothing says whether a generator has changed
        reader = _Reader(columns)
        tables = list(reader.read(part.tables(columns)))
        rows = datasets.Dataset(pa.concat_tables(tables) if tables else _schema(columns).empty_table())
        content = reader.content
    if part.source is not None:
        part.source.check(content.rows + content.blank)
    return Stored(rows, content)


def _arrow_file(part: Part, columns: Sequence[str]) -> Path:
    """Return where a part's rows are kept; another place once a file changes."""
    stats = [(str(path.absolute()), s.st_size, s.st_mtime_ns, s.st_ino) for path in part.paths if (s := path.stat())]
    key = hashlib.sha256(repr((VERSION, stats, part.layout, columns)).encode()).hexdigest()[:32]
    return paths.cache() / "text" / f"{key}.arrow"


def _content(part: Part, columns: Sequence[str]) -> Content:
    """Return what the rows of a part hold, without opening its Arrow file where that was made before."""
    if part.paths:
        noted = _noted(_arrow_file(part, columns))
        return _stored(part, columns).content if noted is None else noted[0]
    reader = _Reader(columns)
    for _ in reader.read(part.tables(columns)):
        pass
    return reader.content


def _known_content(path: Path) -> Content | None:
    """Return what an Arrow file holds, as noted beside it; None where either is missing or damaged."""
    noted = _noted(path)
    try:
        return noted[0] if noted is not None and noted[1] == checksum(path) else None
    except OSError:
        return None


def _noted(path: Path) -> tuple[Content, str] | None:
    """Return what is noted of an Arrow file, and the checksum that the file had; None where the note is damaged."""
    try:
        note = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        content = Content(note["digest"], dict(note["columns"]), int(note["blank"]), int(note["rows"]))
        of_file, of_content = note["crc32"]
        return (content, of_file) if of_content == _content_checksum(content) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _checksum(path: Path, content: Content) -> list[str]:
    """Return the checksums of an Arrow file and of what is noted of it."""
    return [checksum(path), _content_checksum(content)]


def _content_checksum(content: Content) -> str:
    return f"{zlib.crc32(repr(content).encode()):08x}"


def _write(part: Part, columns: Sequence[str], path: Path) -> Content:
    import pyarrow as pa

    draft = path.with_suffix(".tmp")
    reader = _Reader(columns)
    try:
        with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_stream(sink, _schema(columns)) as writer:
            for table in reader.read(part.tables(columns)):
                writer.write_table(table.combine_chunks())
        note = {**asdict(reader.content), "crc32": _checksum(draft, reader.content)}
        write_atomically(path.with_suffix(".json"), json.dumps(note))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return reader.content


def _schema(columns: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in columns])


class _Reader:
    """Passes tables on without their blank rows, and knows afterwards what they held."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = [name for name in columns if name != "subset"]
        self._whole = hashlib.sha256()
        self._each = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
        self._blank = self._rows = 0

    def read(self, tables: Iterable[Any]) -> Iterator[Any]:
        """Yield the tables without their blank rows."""
        import pyarrow.compute as pc

        for table in tables:
            cells = [table.column(name).to_pylist() for name in self._columns]
            lines = cells[0] if len(cells) == 1 else map("\t".join, zip(*cells, strict=True))
            self._whole.update("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
            kept = without_blanks(table)
            for name, (lengths, content) in self._each.items():  # the same whatever chunks the cells come in
                sizes = pc.binary_length(kept.column(name)).combine_chunks().to_numpy(zero_copy_only=False)
                lengths.update(sizes.astype("<i4").tobytes())
                content.update("".join(kept.column(name).to_pylist()).encode("utf-8", "surrogatepass"))
            self._blank += len(table) - len(kept)
            self._rows += len(kept)
            yield kept

    @property
    def content(self) -> Content:
        """What was read so far."""
        each = {
            name: hashlib.sha256(lengths.digest() + content.digest()).hexdigest()
            for name, (lengths, content) in self._each.items()
        }
        return Content(self._whole.hexdigest(), each, self._blank, self._rows)


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)
