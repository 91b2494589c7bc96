"""How runs use the devices of this machine.

One run by several processes of this machine: started, watched, and ended together by torch's elastic agent.

Each is `python -m cse_cli.runs.worker`, a command: it begins without the state of this
process, is the leader of a session of its own, so that Ctrl-C at the terminal reaches this process alone, and finds the
same environment as one that torchrun started. Its run travels as a file.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from cse_cli.core.devices import VARIABLE, environment, worker_devices
from cse_cli.core.paths import runs
from cse_cli.core.processes import PATIENT_SECONDS, place
from cse_cli.core.results import Result
from cse_cli.runs.executor import Handover
from cse_cli.tracking import Terminated
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError


@dataclass(frozen=True)
class Way:
    """What is done at once.

    Args:
        processes: That share each run.
        places: Devices with a run of its own each; empty where one run follows another.
    """

    processes: int = 1
    places: tuple[str, ...] = ()


def way(jobs: Sequence[Job], device: str, processes: int | None, workers: int | None) -> Way:
    """Return how to do jobs: one on all CUDA devices together, several on a device each, on the CPU one after another.

    Args:
        jobs: In the order asked for.
        device: As `cse_cli.core.devices.choose` takes it.
        processes: How many share each run; None leaves it to the devices.
        workers: How many runs at once; None leaves it to the devices.

    Raises:
        CseError: The numbers cannot be had.
    """
    if processes is not None and workers is not None:
        raise CseError(
            "--processes and --workers exclude each other",
            "--processes 2 does each run in two processes, --workers 2 does two runs at once",
        )
    if place() is not None:
        if processes is not None or workers is not None:
            option = "--workers" if processes is None else "--processes"
            raise CseError(f"{option}: torchrun has started the processes of this run", f"leave out {option}")
        return Way()
    if processes is not None:
        _check(jobs, device, processes)
        return Way(processes)
    if len(jobs) == 1:
        return Way(_shares(jobs[0], cuda_devices(device)))
    places = worker_devices("auto" if device == "cuda" else device, workers)[: len(jobs)]
    return Way(places=tuple(places) if len(places) > 1 else ())


def cuda_devices(device: str) -> int:
    """Return how many CUDA devices a run may take; 0 for one on the CPU."""
    if device not in ("auto", "cuda"):
        return int(device != "cpu")
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _shares(job: Job, found: int) -> int:
    """Return the most processes, up to one a device, that share a batch evenly."""
    size = job.loaded.recipe.train.batch_size
    return max(count for count in range(1, max(1, found) + 1) if size % count == 0)


def _check(jobs: Sequence[Job], device: str, processes: int) -> None:
    found = cuda_devices(device)
    if found and processes > found:
        raise CseError(
            f"--processes: {processes} processes need a CUDA device each, and {found} may be used here",
            f"use --processes {found}" + ("" if device in ("auto", "cuda") else " or --device cuda"),
        )
    for job in jobs:
        size = job.loaded.recipe.train.batch_size
        if size % processes:
            even = [count for count in range(1, size + 1) if size % count == 0]
            near = min(even, key=lambda count: abs(count - processes))
            raise CseError(
                f"--processes: {processes} processes cannot share {job.loaded.name}'s train.batch_size = {size} evenly",
                f"use --processes {near}: the batch is that of all processes together",
            )


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TOLD_LINES = 12
Failures = Mapping[int, ProcessFailure]


def together(job: Job, processes: int) -> Result:
    """Do a run in several processes and return its result; rank 0 shows it on the terminal.

    Raises:
        CseError: A process could not start or failed, with its own message, or was killed.
        KeyboardInterrupt: Ctrl-C; the run's end is recorded.
    """
    with Handover.of(job) as handover:
        logs = handover.path / "logs"
        try:
            with _quiet(), _signals_put_back(), _environment(processes, job.device):
                launch = elastic_launch(_config(processes, logs), sys.executable)
                launch("-m", "cse_cli.runs.worker", str(handover.path), str(os.getpid()))
        except ChildFailedError as error:
            raise _cause(handover, error.failures, processes) from None
        except SignalException as asked:
            if asked.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise Terminated(128 + asked.sigval) from None
        result = handover.result()
    if result is None:
        raise RunFailedError("the processes ended without a result", "run it again")
    return result


def _config(processes: int, logs: Path) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid4().hex,
        # A free port of the loopback device: nothing to choose, and no look-up of this machine's name.
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        shutdown_timeout=int(PATIENT_SECONDS) + 5,
        signals_to_handle=",".join(each.name for each in _SIGNALS),
        logs_specs=DefaultLogsSpecs(str(logs), redirects=dict.fromkeys(range(1, processes), Std.ALL)),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the agent's own log from the terminal: what it says of a failure is said here, shorter."""
    logger = logging.getLogger("torch.distributed.elastic")
    handler, before = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


@contextmanager
def _signals_put_back() -> Iterator[None]:
    """The agent installs handlers and leaves them."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _environment(processes: int, device: str) -> Iterator[None]:
    """Give the processes, which start with this one's environment, their share of the cores, and keep C++ quiet."""
    before = dict(os.environ)
    threads = environment(processes, device).get(VARIABLE)
    try:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings are about how training is written
        if threads is not None:
            os.environ[VARIABLE] = threads
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _cause(handover: Handover, failures: Failures, processes: int) -> CseError:
    """Return what to tell of processes that failed: the one that did so by itself, not those it took with it."""
    told = {rank: failure for rank in sorted(failures) if (failure := handover.failure(rank)) is not None}
    own = {rank: failure for rank, failure in told.items() if not failure.lost}
    if own:
        rank, failure = next(iter(own.items()))
        error = failure.error()
        if rank > 0 and len(own) == 1:
            error.message = f"{_named(rank, failures[rank], processes)}: {error.message}"
        return error
    silent = {rank: failure for rank, failure in failures.items() if rank not in told}
    rank, failed = min((silent or failures).items(), key=lambda one: (_was_asked(one[1]), one[0]))
    how, run_id = _how(failed, handover), handover.run_id()
    known = run_id is not None and (runs() / run_id / "run.json").exists()
    action = f"go on with: cse run --resume {run_id[:8]}" if known and run_id else "it had not begun: run it again"
    return RunFailedError(f"{_named(rank, failed, processes)} {how}", action)


def _named(rank: int, failure: ProcessFailure, processes: int) -> str:
    return f"rank {rank} of {processes} (pid {failure.pid} on {socket.gethostname()})"


def _was_asked(failure: ProcessFailure) -> bool:
    """Tell whether it ended because it was asked to, after another one had failed."""
    return any(failure.exitcode in (-number, 128 + number) for number in _SIGNALS)


def _how(failure: ProcessFailure, handover: Handover) -> str:
    if failure.exitcode < 0:
        what = f"was ended by {failure.signal_name()}"
        maybe = "; the kernel does so where memory runs out" if failure.exitcode == -signal.SIGKILL else ""
        return what + maybe
    logs = sorted(handover.path.glob(f"logs/*/attempt_0/{failure.local_rank}/stderr.log"))
    lines = logs[0].read_text(encoding="utf-8", errors="replace").strip().split("\n") if logs else []
    return "\n  ".join([f"ended with code {failure.exitcode}:", *lines[-_TOLD_LINES:]])
