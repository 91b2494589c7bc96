"""Cached files, written atomically by one of several processes, each with a note of its size and of facts about it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import warnings
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
    """Return the facts about a cached file. The file is written first if it is missing or incomplete."""
    with explained_cache_errors(path):
        return noted_facts(path, warn=True) or make_file(path, write)


def noted_facts(path: Path, *, warn: bool = False) -> Facts | None:
    """Return the facts noted about a file, or None if the file or its note is missing or incomplete."""
    try:
        note = path.with_suffix(".json").read_text(encoding="utf-8")
        facts: Facts = json.loads(note.rpartition("\n")[2])  # version 0.1 wrote a checksum in front
        size = path.stat().st_size
        if facts.get("bytes", size) == size:
            return facts
    except (OSError, ValueError, AttributeError):
        pass
    if warn and path.exists():
        warnings.warn(f"cached file {path} is damaged and is created again", stacklevel=3)
    return None


def make_file(path: Path, write: Write) -> Facts:
    """Write a file and its note, unless another process has done it in the meantime."""
    make_folder(path.parent)
    with FileLock(f"{path}.lock"):
        if (known := noted_facts(path)) is not None:
            return known
        draft = path.with_name(f"tmp-{path.name}")
        try:
            facts = write(draft)
            facts = {**facts, "bytes": draft.stat().st_size}
            write_atomically(path.with_suffix(".json"), json.dumps(facts))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return facts


def damaged(path: Path, why: str) -> CseError:
    """Return the error for a cached file that has the right size, but cannot be read."""
    return CseError(
        f"cached file {path} is damaged: {' '.join(why.split())[:200]}",
        "delete it, and run the command again",
        code="data.damaged_cache",
    )


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

    def __call__(self, piece: Piece) -> int:
        """Make the file of a piece, and return its number of rows."""
        make_file(piece.path, lambda path: self.write(piece.rows, path))
        return len(piece.rows)


def write_pieces(
    writer: PieceWriter, pieces: Iterable[Piece], total: int, processes: int, option: str, progress: Progress | None
) -> None:
    """Write the files of pieces that are missing or incomplete, each once. `option` sets the number of processes."""
    missing = list({piece.path: piece for piece in pieces if noted_facts(piece.path, warn=True) is None}.values())
    done = total - sum(len(piece.rows) for piece in missing)
    processes = min(processes, len(missing))

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    with explained_cache_errors(paths.cache()):
        if processes <= 1:
            writer.count = count
            for piece in missing:
                writer(piece)
        else:
            for rows in _in_processes(writer, missing, processes, option):
                count(rows)


def _in_processes(writer: PieceWriter, pieces: Sequence[Piece], processes: int, option: str) -> Iterator[int]:
    """Yield the numbers of rows of pieces in the order in which they become available.

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


def _run_task(piece: Piece) -> int:
    return _worker[0](piece)
