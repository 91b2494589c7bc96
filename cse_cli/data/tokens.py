"""Tokenised columns: shards of 262,144 rows, memory-mapped, each made once and whole by `Dataset.map`.

A process that is killed loses the shards it was making, no others. A second start opens the files, tokenising nothing.
Beside each lies its CRC-32, which is read again at every opening: of 9 files with one bit flipped, 3 trained something
else in silence and 4 ended in an IndexError of the embedding.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from filelock import FileLock

from cse_cli.core import paths
from cse_cli.core.devices import usable_threads
from cse_cli.core.processes import end_with_parent
from registry import hub
from registry.errors import CseError, DiskError, RunFailedError
from registry.paths import make_folder, no_room, write_atomically
from registry.tokens import Vocabulary

Cell = TypeVar("Cell")

Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""

VERSION = "2"
"""Part of every file's key: raise it when the same input makes other content."""

SHARD = 262_144
"""Rows of a file: what is lost by a kill, and 30 MB."""

BATCH = 1024
"""Sentences tokenised at a time: 8,192 took a fifth more processor time."""

THREADS = 4
"""Cores a process: a tenth of the time of one is spent outside the tokenizer's threads."""


class Column(Generic[Cell]):
    """Token ids or sentences, by row.

    Args:
        rows: A `datasets.Dataset` of one column.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = len(rows)
        self._cells = rows.with_format("arrow")

    def take(self, indices: Sequence[int]) -> list[Cell]:
        """Return the cells of some rows, in that order: token ids of 64 rows of a million in 0.35 ms."""
        cells: list[Cell] = self._cells[list(indices)].column(0).to_pylist()
        return cells


def join(parts: Sequence[Any]) -> Any:
    """Return data sets one after the other, without copying."""
    import datasets

    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(list(parts))


def tokenise(
    text: Any,
    rows: int,
    column: str,
    digest: str,
    vocabulary: Vocabulary,
    max_length: int,
    progress: Progress | None = None,
) -> Any:
    """Return the tokens of a column as a `datasets.Dataset`, from files that are made if missing or damaged.

    Args:
        text: `datasets.Dataset` of sentences.
        rows: How many of its first rows are wanted.
        column: Which column is read.
        digest: Of its content: part of the files' key.
        vocabulary: What tokenises it.
        max_length: Ids a row is cut to, specials included.
        progress: Called after every batch, where there is something to make.

    Raises:
        CseError: The cache cannot be written.
    """
    key = "\n".join((VERSION, digest, vocabulary.fingerprint, str(max_length)))
    folder = paths.cache() / "tokens" / hashlib.sha256(key.encode()).hexdigest()[:32]
    starts = range(0, rows, SHARD)
    shards = [_Shard(folder, number, start, min(start + SHARD, rows)) for number, start in enumerate(starts)]
    try:
        opened = [shard.open() for shard in shards]
        if None in opened:
            make_folder(folder)
            with FileLock(folder / "lock"):
                _make(folder, shards, _Tokeniser(text, column, vocabulary, max_length), progress)
            opened = [shard.open() for shard in shards]
    except OSError as error:
        raise cache_error(folder, error) from error
    return join(opened)


def cache_error(path: Path, error: OSError) -> CseError:
    """Return the error of a cache that cannot be written."""
    kind = DiskError if no_room(error) else CseError
    return kind(
        f"{path}: the cache cannot be written: {no_room(error) or error.strerror or error}",
        "free some disk space, or set CSE_HOME to a folder that can be written",
    )


def processes(shards: int) -> int:
    """Return how many processes tokenise: `CSE_TOKENIZE_PROCESSES`, else one for every `THREADS` cores."""
    asked = os.environ.get("CSE_TOKENIZE_PROCESSES", "")
    if asked and not (asked.isdecimal() and int(asked) > 0):
        raise CseError(f"CSE_TOKENIZE_PROCESSES={asked} is not a number of processes", "give a number from 1")
    return max(1, min(int(asked) if asked else usable_threads() // THREADS, shards))


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file, 8 hexadecimal digits: half a second a GB of one core, where SHA-256 takes one."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


def warn_of_damage(what: str) -> None:
    """Say that a cache is made again."""
    warnings.warn(f"{what} is damaged, or of an earlier version without checksums, and is made again", stacklevel=3)


@dataclass(frozen=True)
class _Shard:
    """The file of some rows; full ones are shared by all lengths that a text is cut to."""

    folder: Path
    number: int
    start: int
    stop: int

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:05}-{self.stop - self.start}.arrow"

    @property
    def note(self) -> Path:
        """The file that keeps its checksum."""
        return self.path.with_suffix(".crc32")

    def open(self) -> Any:
        """Return its rows, or None if it is missing, damaged, or of a version that wrote no checksum."""
        import datasets
        import pyarrow as pa

        try:
            if self.note.read_text(encoding="ascii") != checksum(self.path):
                return None
            rows = datasets.Dataset.from_file(str(self.path))
        except (OSError, ValueError, pa.ArrowException):
            return None
        return rows if len(rows) == self.stop - self.start else None


@dataclass(frozen=True)
class _Tokeniser:
    """What is tokenised, by what."""

    text: Any
    column: str
    vocabulary: Vocabulary
    max_length: int

    def write(self, shard: _Shard, count: Callable[[int], None]) -> None:
        """Make one file, under another name first; `count` is called with the rows of each batch."""
        import datasets

        draft = shard.path.with_name(f"tmp-{shard.path.name}")

        def tokens(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
            ids = self.vocabulary.ids(batch[self.column], self.max_length)
            count(len(ids))
            return {"ids": ids}

        datasets.disable_progress_bars()
        self.text.select_columns([self.column]).select(range(shard.start, shard.stop)).map(
            tokens,
            batched=True,
            batch_size=BATCH,
            writer_batch_size=8 * BATCH,
            remove_columns=[self.column],
            features=datasets.Features({"ids": datasets.List(datasets.Value("int32"))}),
            cache_file_name=str(draft),
            load_from_cache_file=False,
            new_fingerprint=f"{shard.folder.name}{shard.number}",
        )
        write_atomically(shard.note, checksum(draft))
        draft.replace(shard.path)


def _make(folder: Path, shards: Sequence[_Shard], tokeniser: _Tokeniser, progress: Progress | None) -> None:
    """Make the files that are missing; this process holds the folder's lock."""
    _clear(folder)
    missing = [shard for shard in shards if shard.open() is None]
    if damaged := [shard.path.name for shard in missing if shard.path.exists()]:
        warn_of_damage(f"{folder}: {', '.join(damaged)}")
    total = shards[-1].stop
    done = total - sum(shard.stop - shard.start for shard in missing)

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, total)

    try:
        if (number := processes(len(missing))) > 1:
            _make_in_processes(missing, tokeniser, number, count)
        else:
            for shard in missing:
                tokeniser.write(shard, count)
    except OSError:
        _clear(folder)  # `datasets` leaves its own where the disk is full
        raise


def _clear(folder: Path) -> None:
    """Delete what a process that failed or was killed has left."""
    for left in folder.glob("tmp*"):
        left.unlink(missing_ok=True)


# --- several processes ------------------------------------------------------------------------------------------------


def _make_in_processes(
    shards: Sequence[_Shard], tokeniser: _Tokeniser, number: int, count: Callable[[int], None]
) -> None:
    """Make files in spawned processes: the tokenizer's threads do not survive a fork."""
    context = multiprocessing.get_context("spawn")
    done, counted = context.Value("q", 0), 0
    arguments = (tokeniser, tokeniser.vocabulary.fingerprint, done, hub.used(), max(1, usable_threads() // number))
    with ProcessPoolExecutor(number, context, _start_worker, arguments) as pool:
        try:
            waiting = {pool.submit(_write_shard, shard) for shard in shards}
            while waiting:
                ended, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                now = done.value
                count(now - counted)
                counted = now
                for each in ended:
                    each.result()
        except BrokenProcessPool as error:
            raise RunFailedError(
                "a process that tokenised was killed; memory may be short",
                f"run it again, or with CSE_TOKENIZE_PROCESSES={number // 2}; what is tokenised is kept",
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_worker: list[tuple[_Tokeniser, Any]] = []
"""In a worker process: what it does, and the rows done by all."""


def _start_worker(tokeniser: _Tokeniser, fingerprint: str, done: Any, commits: dict[str, str], threads: int) -> None:
    """Prepare a process: the tokenizer is loaded by name, at the commit that the run has, and must be the same."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # before the tokenizer is loaded
    end_with_parent()
    hub.pin(commits)
    if tokeniser.vocabulary.fingerprint != fingerprint:
        raise RuntimeError("the tokenizer differs from that of the first process")
    _worker[:] = [(tokeniser, done)]


def _write_shard(shard: _Shard) -> None:
    (tokeniser, done), *_ = _worker

    def count(rows: int) -> None:
        with done.get_lock():
            done.value += rows

    tokeniser.write(shard, count)
