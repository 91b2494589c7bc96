"""Tasks computed in several spawned processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from cse_cli.core.devices import thread_setting, usable_threads
from cse_cli.core.processes import end_with_parent
from registry.errors import RunFailedError
from registry.resources import hub

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_in_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], processes: int, option: str
) -> Iterator[Result]:
    """Yield the results of tasks in the order in which they become available.

    The processes are spawned, because the threads of tokenizers and of torch do not survive a fork. They end with this
    process, even if it is killed.

    Args:
        function: Function of a task. Each process receives its own pickled copy.
        tasks: Tasks.
        processes: Number of processes, which share the cores.
        option: Option that sets the number of processes, for error messages.

    Raises:
        RunFailedError: If a process is killed.
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
