"""Cached files of parts of a text, written in this process or in several spawned processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from cse_cli.core.devices import thread_setting, usable_threads
from cse_cli.core.processes import end_with_parent
from cse_cli.data.cache import Facts, make_file, whole_file
from registry.errors import RunFailedError
from registry.resources import hub

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Called with the number of rows done and the total number of rows."""


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


def missing_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces whose files are missing or damaged. Pieces with the same file are listed once."""
    return list({piece.path: piece for piece in pieces if whole_file(piece.path) is None}.values())


def write_pieces(
    writer: PieceWriter, pieces: Sequence[Piece], total: int, processes: int, option: str, progress: Progress | None
) -> list[Facts]:
    """Write the files of pieces, of a text with `total` rows, and return the facts about them."""
    done = total - sum(len(piece.rows) for piece in pieces)

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    if processes == 1:
        writer.count = count
        return [facts for _, facts in map(writer, pieces)]
    made = []
    for rows, facts in run_in_processes(writer, pieces, processes, option):
        count(rows)
        made.append(facts)
    return made


def run_in_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], processes: int, option: str
) -> Iterator[Result]:
    """Yield the results of tasks in the order in which they become available.

    The processes are spawned, because the threads of tokenizers and of torch do not survive a fork. They share the
    cores and end with this process, even if it is killed. Errors name the option that sets their number.
    """
    threads, others = max(1, usable_threads() // processes), multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _start_worker, (function, hub.used(), threads))
    try:
        with _interrupts_blocked():
            futures = [pool.submit(_run_task, task) for task in tasks]
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


_worker: list[Callable[[Any], Any]] = []
"""Function that this worker process runs."""


def _start_worker(function: Callable[[Any], Any], commits: dict[str, str], threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    end_with_parent()
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # read when the tokenizer is loaded
    if thread_setting() is None:
        torch.set_num_threads(threads)
    hub.pin(commits)
    _worker[:] = [function]


def _run_task(task: Any) -> Any:
    return _worker[0](task)
