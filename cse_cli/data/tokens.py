"""Tokenized columns: memory-mapped shards of 262,144 rows, each written atomically.

A killed process loses only the shards that it was writing. A second start opens the files and tokenizes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cse_cli.core import paths
from cse_cli.core.devices import usable_threads
from cse_cli.data.cache import Facts, explained_cache_errors, make_file, whole_file
from cse_cli.data.pool import run_in_processes
from registry.errors import CseError
from registry.tokens import Vocabulary

Cell = TypeVar("Cell")

Progress = Callable[[int, int], None]
"""Called with the number of rows done and the total number of rows."""

VERSION = "3"
"""Part of the key of every file. Raise it if the same input gives other content."""

SHARD = 262_144
"""Rows of a file, which then has about 30 MB."""

ROWS = 8192
"""Rows of a record batch."""

BATCH = 1024
"""Sentences that are tokenized together. 8,192 take a fifth more processor time."""

THREADS = 4
"""Cores per process. A process spends a tenth of its time outside the threads of the tokenizer."""


class Column(Generic[Cell]):
    """Token ids or sentences, with access by row.

    Args:
        rows: A `datasets.Dataset` of one column.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = len(rows)
        self._cells = rows.with_format("arrow")

    def take(self, indices: Sequence[int]) -> list[Cell]:
        """Return the cells of some rows in the given order. 64 of a million rows of token ids take 0.35 ms."""
        cells: list[Cell] = self._cells[list(indices)].column(0).to_pylist()
        return cells


def concatenate(parts: Sequence[Any]) -> Any:
    """Return several `datasets.Dataset`s as one, without copying."""
    import datasets

    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(list(parts))


def write_arrow(path: Path, schema: Any, tables: Iterator[Any]) -> None:
    """Write tables to an Arrow file that `datasets.Dataset.from_file` can map."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for table in tables:
            writer.write_table(table.combine_chunks())


def tokenize(
    text: Any,
    rows: int,
    column: str,
    digest: str,
    vocabulary: Vocabulary,
    max_length: int,
    progress: Progress | None = None,
) -> Any:
    """Return the token ids of a column as a `datasets.Dataset`. Files that are missing or damaged are written first.

    Args:
        text: `datasets.Dataset` of sentences.
        rows: Number of rows to tokenize, from the first one on.
        column: Name of the column.
        digest: Digest of the column's content, part of the files' key.
        vocabulary: Tokenizer.
        max_length: Maximum number of ids in a row, special tokens included.
        progress: Called while rows are tokenized.

    Raises:
        CseError: If the cache cannot be written.
    """
    import datasets

    key = "\n".join((VERSION, digest, vocabulary.fingerprint, str(max_length)))
    directory = paths.cache() / "tokens" / hashlib.sha256(key.encode()).hexdigest()[:32]
    shards = []
    for number, start in enumerate(range(0, rows, SHARD)):
        stop = min(start + SHARD, rows)
        shards.append(_Shard(directory / f"{number:05}-{stop - start}.arrow", start, stop))
    with explained_cache_errors(directory):
        missing = [shard for shard in shards if whole_file(shard.path) is None]
        _write_shards(missing, _Tokenizer(text.select_columns([column]), vocabulary, max_length), rows, progress)
        return concatenate([datasets.Dataset.from_file(str(shard.path)) for shard in shards])


def tokenizer_processes(shards: int) -> int:
    """Return the number of processes: `CSE_TOKENIZE_PROCESSES`, else one for every `THREADS` cores."""
    value = os.environ.get("CSE_TOKENIZE_PROCESSES", "")
    if value and not (value.isdecimal() and int(value) > 0):
        raise CseError(
            f"CSE_TOKENIZE_PROCESSES='{value}' is not a positive integer",
            "set it to a number of processes, for example 2",
            code="data.bad_process_count",
        )
    return max(1, min(int(value) if value else usable_threads() // THREADS, shards))


@dataclass(frozen=True)
class _Shard:
    """One file of tokens. Texts that are cut to different numbers of rows share their full shards."""

    path: Path
    start: int
    stop: int


@dataclass
class _Tokenizer:
    """Writes shards.

    Args:
        text: `datasets.Dataset` of one column of sentences.
        vocabulary: Tokenizer. `HubVocabulary` is pickled as its name.
        max_length: Maximum number of ids in a row.
        count: Called with the rows of each record batch.
    """

    text: Any
    vocabulary: Vocabulary
    max_length: int
    count: Callable[[int], None] | None = None

    def __call__(self, shard: _Shard) -> int:
        """Write a shard and return its number of rows."""
        make_file(shard.path, lambda path: self._write(shard, path))
        return shard.stop - shard.start

    def _write(self, shard: _Shard, path: Path) -> Facts:
        import pyarrow as pa

        rows = self.text.select(range(shard.start, shard.stop)).with_format("arrow")
        schema = pa.schema({"ids": pa.list_(pa.int32())})
        write_arrow(path, schema, (self._ids(table, schema) for table in rows.iter(ROWS)))
        return {}

    def _ids(self, table: Any, schema: Any) -> Any:
        import pyarrow as pa

        cells, ids = table.column(0).to_pylist(), []
        for start in range(0, len(cells), BATCH):
            ids += self.vocabulary.ids(cells[start : start + BATCH], self.max_length)
        if self.count is not None:
            self.count(len(ids))
        return pa.table({"ids": ids}, schema=schema)


def _write_shards(missing: Sequence[_Shard], tokenizer: _Tokenizer, rows: int, progress: Progress | None) -> None:
    done = rows - sum(shard.stop - shard.start for shard in missing)

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, rows)

    processes = tokenizer_processes(len(missing))
    if processes > 1:
        for written in run_in_processes(tokenizer, missing, processes, "CSE_TOKENIZE_PROCESSES"):
            count(written)
        return
    tokenizer.count = count
    for shard in missing:
        tokenizer(shard)
