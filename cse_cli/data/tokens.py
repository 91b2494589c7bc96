"""Tokenized columns: memory-mapped shards of 262,144 rows, each written atomically.

A killed process loses only the shards that it was writing. A second start opens the files and tokenizes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cse_cli.core import paths
from cse_cli.core.threads import usable_threads
from cse_cli.data.cache import Facts, Piece, PieceWriter, Progress, damaged, write_pieces
from registry.errors import CseError
from registry.tokens import Vocabulary

Cell = TypeVar("Cell")

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

    The parts are `datasets.Dataset`s of one column, which are not copied.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        import datasets

        rows = parts[0] if len(parts) == 1 else datasets.concatenate_datasets(list(parts))
        self.rows = len(rows)
        self._cells = rows.with_format("arrow")

    def take(self, indices: Sequence[int]) -> list[Cell]:
        """Return the cells of some rows in the given order. 64 of a million rows of token ids take 0.35 ms."""
        cells: list[Cell] = self._cells[list(indices)].column(0).to_pylist()
        return cells


def write_arrow(path: Path, schema: Any, tables: Iterator[Any]) -> None:
    """Write tables to an Arrow file that `datasets.Dataset.from_file` can map."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for table in tables:
            writer.write_table(table.combine_chunks())


def read_arrow(path: Path) -> Any:
    """Return a memory-mapped Arrow file as a `datasets.Dataset`."""
    import datasets

    try:
        return datasets.Dataset.from_file(str(path))
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error


def tokenize(
    text: Any,
    rows: int,
    column: str,
    digest: str,
    vocabulary: Vocabulary,
    max_length: int,
    progress: Progress | None = None,
) -> list[Any]:
    """Return the token ids of the first rows of a column as `datasets.Dataset`s. Missing files are written first.

    Texts that are cut to different numbers of rows share full shards. `digest` is that of the column's content.
    """
    key = "\n".join((VERSION, digest, vocabulary.fingerprint, str(max_length)))
    directory = paths.cache() / "tokens" / hashlib.sha256(key.encode()).hexdigest()[:32]
    parts = (range(start, min(start + SHARD, rows)) for start in range(0, rows, SHARD))
    shards = [Piece(directory / f"{number:05}-{len(part)}.arrow", part) for number, part in enumerate(parts)]
    tokenizer = _Tokenizer(text.select_columns([column]), vocabulary, max_length)
    processes = tokenizer_processes(len(shards))
    write_pieces(tokenizer, shards, rows, processes, "CSE_TOKENIZE_PROCESSES", progress)
    return [read_arrow(shard.path) for shard in shards]


def tokenizer_processes(shards: int) -> int:
    """Return the number of processes: `CSE_TOKENIZE_PROCESSES`, else one for every `THREADS` threads."""
    value = os.environ.get("CSE_TOKENIZE_PROCESSES", "")
    if value and not (value.isdecimal() and int(value) > 0):
        raise CseError(
            f"CSE_TOKENIZE_PROCESSES='{value}' is not a positive integer",
            "set it to a number of processes, for example 2",
            code="data.bad_process_count",
        )
    return max(1, min(int(value) if value else usable_threads() // THREADS, shards))


@dataclass
class _Tokenizer(PieceWriter):
    """Writer of shards of a `datasets.Dataset` with one column. `HubVocabulary` is pickled as its name."""

    text: Any
    vocabulary: Vocabulary
    max_length: int

    def write(self, rows: range, path: Path) -> Facts:
        import pyarrow as pa

        text = self.text.select(rows).with_format("arrow")
        schema = pa.schema({"ids": pa.list_(pa.int32())})
        write_arrow(path, schema, (self._ids(table, schema) for table in text.iter(ROWS)))
        return {}

    def _ids(self, table: Any, schema: Any) -> Any:
        import pyarrow as pa

        cells, ids = table.column(0).to_pylist(), []
        for start in range(0, len(cells), BATCH):
            ids += self.vocabulary.ids(cells[start : start + BATCH], self.max_length)
        if self.count is not None:
            self.count(len(ids))
        return pa.table({"ids": ids}, schema=schema)
