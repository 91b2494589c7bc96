"""The training text a recipe names: catalogue data sets one after the other, or a file of one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from cse_cli import home
from cse_cli.data.scans import scan
from cse_cli.data.tokens import VERSION, Progress, TextColumn, TokenColumn, text_column, token_column
from cse_cli.recipe.schema import Data
from registry import catalogue
from registry.catalogue import Source, own_source
from registry.errors import CseError
from registry.tokens import Vocabulary


@dataclass(frozen=True)
class Text:
    """Rows of text cells, read as often as asked.

    Args:
        sources: Where the rows come from, in order.
        columns: Columns that all sources have.
        rows: Rows in all, after the limit.
        digests: "dataset/split", or the file's path → SHA-256 of its content.
    """

    sources: tuple[Source, ...]
    columns: tuple[str, ...]
    rows: int
    digests: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """Digest of the content, the limit and how columns are read."""
        layout = [source.columns for source in self.sources]
        identity = repr((list(self.digests.values()), layout, self.rows))
        return hashlib.sha256(identity.encode()).hexdigest()

    def cells(self, column: str) -> Iterator[str]:
        """Yield one column, row by row."""
        rows = chain.from_iterable(source.read([column]) for source in self.sources)
        return (row[0] for row in islice(rows, self.rows))

    def tokens(
        self, column: str, vocabulary: Vocabulary, max_length: int, progress: Progress | None = None
    ) -> TokenColumn:
        """Return one column's tokens, made at first use and kept in the cache."""
        path = self._file("tokens", column, vocabulary.fingerprint, str(max_length))
        return token_column(path, self.cells(column), self.rows, vocabulary, max_length, progress)

    def sentences(self, column: str) -> TextColumn:
        """Return one column for access by row, kept in the cache."""
        return text_column(self._file("text", column), self.cells(column), self.rows)

    def _file(self, kind: str, *key: str) -> Path:
        name = hashlib.sha256("\n".join((VERSION, self.fingerprint, *key)).encode()).hexdigest()[:32]
        return home.cache() / kind / f"{name}.arrow"


def open_text(data: Data, columns: set[str]) -> Text:
    """Return the training text, found, counted and checked.

    Args:
        data: What the recipe names.
        columns: Columns that views and augmenters read.

    Raises:
        CseError: Rows are missing or malformed, or a column is not there.
        MissingError: A data set is not on this machine and cannot be fetched.
    """
    sources = _sources(data)
    digests, rows = {}, 0
    for name, source in sources.items():
        _require(data, name, source, columns)
        counted, digests[name] = scan(source)
        rows += source.check(counted)
    if rows == 0:
        raise CseError(f"{data.file}: no sentences", "one sentence a line")
    found = tuple(sources.values())
    shared = tuple(c for c in found[0].columns if all(c in source.columns for source in found))
    return Text(found, shared, min(rows, data.limit or rows), digests)


def _sources(data: Data) -> dict[str, Source]:
    if data.file is not None and data.dataset:
        raise CseError("[data] names both `dataset` and `file`", "keep one of them")
    if data.file is not None:
        return {data.file: _own(Path(data.file).expanduser())}
    if not data.dataset:
        raise CseError("[data] names neither `dataset` nor `file`", "`cse data list` shows the data sets")
    repeated = {name for name in data.dataset if data.dataset.count(name) > 1}
    if repeated:
        raise CseError(f"[data] dataset names {', '.join(sorted(repeated))} twice", "name each data set once")
    return {f"{name}/{data.split}": catalogue.locate(name, data.split) for name in data.dataset}


def _own(path: Path) -> Source:
    """Return the user's file as a source."""
    if not path.is_file():
        raise CseError(f"{path}: no such file", "`[data] file` is a path to a .txt or .tsv, plain or .gz")
    return own_source(path)


def _require(data: Data, name: str, source: Source, columns: set[str]) -> None:
    missing = sorted(columns - set(source.columns))
    if not missing:
        return
    asked = data.file or name.removesuffix(f"/{data.split}")
    advice = (
        f"`cse data translate {asked} --model MODEL` makes it with a translation model"
        if missing == ["translation"]
        else "name another column in the recipe's view, or add this one to the data"
    )
    what = "file" if data.file else "dataset"
    raise CseError(
        f"{what} '{name}' has no column {', '.join(map(repr, missing))}; its columns are {', '.join(source.columns)}",
        advice,
    )
