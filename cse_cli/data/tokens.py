"""One column of the training text, in a memory-mapped Arrow file that is made once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from filelock import FileLock

from registry.errors import CseError
from registry.tokens import Vocabulary

Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""

CHUNK = 8192
"""Rows of a record batch: bounds memory while writing, and keeps opening a million rows in milliseconds."""

VERSION = "1"
"""Part of every file's key: raise it when the same input makes other content."""


class _Chunks:
    """An Arrow file of one column, `CHUNK` rows to a record batch, mapped into memory."""

    def __init__(self, path: Path, rows: int) -> None:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            self.chunks = [reader.get_batch(index).column(0) for index in range(reader.num_record_batches)]
        self.rows = rows
        if sum(map(len, self.chunks)) != rows:
            raise pa.ArrowInvalid(f"{path}: not {rows} rows")


class TokenColumn(_Chunks):
    """Token ids of every row."""

    def __init__(self, path: Path, rows: int) -> None:
        super().__init__(path, rows)
        self._views = [(_view(chunk.values), _view(chunk.offsets)) for chunk in self.chunks]

    def take(self, indices: Sequence[int]) -> list[list[int]]:
        """Return the ids of the rows asked for, in that order."""
        rows = []
        for index in indices:
            chunk, row = divmod(index, CHUNK)
            values, offsets = self._views[chunk]
            rows.append(values[offsets[row] : offsets[row + 1]].tolist())
        return rows


def _view(array: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the numbers of an Arrow array without copying; its own `to_numpy` would import pandas."""
    numbers = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return numbers[array.offset : array.offset + len(array)]


class TextColumn(_Chunks):
    """The sentences themselves."""

    def take(self, indices: Sequence[int]) -> list[str]:
        """Return the rows asked for, in that order."""
        return [self.chunks[index // CHUNK][index % CHUNK].as_py() for index in indices]


def token_column(
    path: Path,
    cells: Iterable[str],
    rows: int,
    vocabulary: Vocabulary,
    max_length: int,
    progress: Progress | None = None,
) -> TokenColumn:
    """Return a column's tokens from the file at `path`, which is made if it is missing or damaged.

    Args:
        path: File whose name is the key of content, vocabulary and length.
        cells: Sentences, read only if the file has to be made.
        rows: How many there are.
        vocabulary: What tokenises them.
        max_length: Ids a row is cut to, specials included.
        progress: Told after every chunk.
    """
    kind = pa.list_(pa.int32())

    def made() -> Iterator[Any]:
        done = 0
        for chunk in _chunked(cells):
            yield pa.array(vocabulary.ids(chunk, max_length), type=kind)
            done += len(chunk)
            if progress is not None:
                progress(done, rows)

    return _cached(path, TokenColumn, rows, kind, made)


def text_column(path: Path, cells: Iterable[str], rows: int) -> TextColumn:
    """Return a column's sentences from the file at `path`, which is made if it is missing or damaged."""
    return _cached(
        path, TextColumn, rows, pa.string(), lambda: (pa.array(c, type=pa.string()) for c in _chunked(cells))
    )


C = TypeVar("C", bound=_Chunks)


def _cached(path: Path, cls: type[C], rows: int, kind: Any, arrays: Callable[[], Iterable[Any]]) -> C:
    if (column := _opened(path, cls, rows)) is not None:
        return column
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if _opened(path, cls, rows) is None:  # another process may have made it while this one waited
                _write(path, kind, arrays())
    except OSError as error:
        raise CseError(
            f"{path}: the cache cannot be written: {error.strerror or error}",
            "free some disk space, or set CSE_HOME to a folder that can be written",
        ) from error
    return cls(path, rows)


def _opened(path: Path, cls: type[C], rows: int) -> C | None:
    try:
        return cls(path, rows) if path.is_file() else None
    except (OSError, pa.ArrowInvalid):
        return None


def _write(path: Path, kind: Any, arrays: Iterable[Any]) -> None:
    for left in path.parent.glob(f"{path.name}.*.tmp"):  # by a process that was killed: the lock is ours now
        left.unlink(missing_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    schema = pa.schema([("column", kind)])
    try:
        with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for array in arrays:
                writer.write_batch(pa.record_batch([array], schema=schema))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _chunked(cells: Iterable[str]) -> Iterator[list[str]]:
    source = iter(cells)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
