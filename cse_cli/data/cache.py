"""Cached files, written atomically by one of several processes, each with a note of its checksum.

A damaged file is created again. Of 9 token files with one flipped bit, 3 changed the training silently and 4 caused an
IndexError in the embedding.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from filelock import FileLock

from cse_cli.core import paths
from cse_cli.core.processes import end_with_parent
from cse_cli.core.threads import thread_setting, usable_threads
from registry.errors import CseError, DiskError, RunFailedError
from registry.paths import make_folder, no_room, write_atomically
from registry.resources import hub

Progress = Callable[[int, int], None]
"""Called with the number of rows done and the total number of rows."""

Facts = dict[str, Any]
"""Facts about the content of a file, as JSON values."""

Write = Callable[[Path], Facts]
"""Writes a file to a path and returns facts about its content."""


def cached(path: Path, write: Write) -> Facts:
    """Return the facts about a cached file. The file is written first if it is missing or damaged."""
    with explained_cache_errors(path):
        return whole_file(path) or make_file(path, write)


def whole_file(path: Path, *, warn: bool = True) -> Facts | None:
    """Return the facts about a file, or None if the file is missing or damaged. A damaged file causes a warning."""
    facts = noted_facts(path)
    try:
        if facts is not None and facts["file"] == _checksum_of_file(path):
            return facts
    except OSError:
        pass
    if warn and path.exists():
        warnings.warn(f"cached file {path} is damaged and is created again", stacklevel=2)
    return None


def noted_facts(path: Path) -> Facts | None:
    """Return the facts noted about a file without reading the file, or None if the note is missing or damaged."""
    try:
        checksum, _, note = _note_of(path).read_text(encoding="utf-8").partition("\n")
        facts: Facts | None = json.loads(note) if checksum == _checksum(note.encode()) else None
    except (OSError, ValueError):
        return None
    return facts


def make_file(path: Path, write: Write) -> Facts:
    """Write a file and its note, unless another process has done it in the meantime."""
    make_folder(path.parent)
    with FileLock(f"{path}.lock"):
        if (known := whole_file(path, warn=False)) is not None:
            return known
        draft = path.with_name(f"tmp-{path.name}")
        try:
            facts = {**write(draft), "file": _checksum_of_file(draft)}
            note = json.dumps(facts)
            write_atomically(_note_of(path), f"{_checksum(note.encode())}\n{note}")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return facts


@contextmanager
def explained_cache_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an error that explains how to make the cache writable."""
    try:
        yield
    except OSError as error:
        kind = DiskError if no_room(error) else CseError
        raise kind(
            f"cannot write to '{error.filename2 or error.filename or path}': "
            f"{no_room(error) or error.strerror or error}",
            "free some disk space, or set CSE_HOME to a directory that you can write to",
            code="data.cache_not_writable",
        ) from error


def _note_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _checksum_of_file(path: Path) -> str:
    """Return the CRC-32 of a file. It takes 0.5 s/GB on one core, SHA-256 twice as long."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


# --- files of many rows, in several processes -------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a text, and the cached file that is made from them."""

    path: Path
    rows: range


class PieceWriter:
    """Base class of writers of the files of pieces. In other processes, each has its own pickled copy."""

    count: Callable[[int], None] | None = None
    """Called with the number of rows that were done since the last call. Not used in other processes."""

    def write(self, rows: range, path: Path) -> Facts:
        """Write the file of some rows and return facts about it."""
        raise NotImplementedError

    def __call__(self, piece: Piece) -> tuple[int, Facts]:
        """Make the file of a piece. Return its number of rows and the facts."""
        return len(piece.rows), make_file(piece.path, lambda path: self.write(piece.rows, path))


def write_pieces(
    writer: PieceWriter, pieces: Iterable[Piece], total: int, processes: int, option: str, progress: Progress | None
) -> list[Facts]:
    """Write the files of pieces that are missing or damaged, and return the facts about the written ones.

    Args:
        writer: Writer.
        pieces: Pieces. Those with the same file are written once.
        total: Number of rows of all pieces.
        processes: Maximum number of processes.
        option: Option that sets the number of processes, for error messages.
        progress: Called while files are written.

    Raises:
        CseError: If the cache cannot be written.
        RunFailedError: If a process is killed.
    """
    missing = list({piece.path: piece for piece in pieces if whole_file(piece.path) is None}.values())
    done = total - sum(len(piece.rows) for piece in missing)
    processes = min(processes, len(missing))

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    made = []
    with explained_cache_errors(paths.cache()):
        if processes <= 1:
            writer.count = count
            return [facts for _, facts in map(writer, missing)]
        for rows, facts in _in_processes(writer, missing, processes, option):
            count(rows)
            made.append(facts)
    return made


def _in_processes(
    writer: PieceWriter, pieces: Sequence[Piece], processes: int, option: str
) -> Iterator[tuple[int, Facts]]:
    """Yield the results of the writer for pieces in the order in which they become available.

    The processes are spawned, because the threads of tokenizers and of torch do not survive a fork. They share the
    cores of this process, and end with it, even if it is killed.
    """
    threads, others = max(1, usable_threads() // processes), multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _start_worker, (writer, hub.used(), threads))
    try:
        with _interrupts_blocked():
            futures = [pool.submit(_run_task, piece) for piece in pieces]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise RunFailedError(
            "a worker process was killed, possibly because the machine ran out of memory",
            f"run the same command again with a smaller {option}; finished parts are kept",
            code="data.worker_killed",
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes with Ctrl-C blocked, so that it does not end them with a traceback while they import modules."""
    resource_tracker.ensure_running()  # it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker: list[PieceWriter] = []
"""Writer of this worker process."""


def _start_worker(writer: PieceWriter, commits: dict[str, str], threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    end_with_parent()
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # read when the tokenizer is loaded
    if thread_setting() is None:
        torch.set_num_threads(threads)
    hub.pin(commits)
    _worker[:] = [writer]


def _run_task(piece: Piece) -> tuple[int, Facts]:
    return _worker[0](piece)
