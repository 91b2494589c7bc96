"""One run in several processes of this machine, which torch's elastic agent starts, watches and ends together.

Each process has the environment of a process started by torchrun. It reads its job from a directory that only its owner
can read. Rank 0 sends the events of the run through a socket in that directory, so that the observer stays in this
process.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from cse_cli.core.distributed import LostRankError
from cse_cli.core.events import Observer
from cse_cli.core.processes import PATIENT_SECONDS
from cse_cli.core.results import Result
from cse_cli.core.threads import worker_environment
from cse_cli.jobs.child import describe_exit, receive
from cse_cli.mirrors import follow
from cse_cli.runs.record import ABOUT, folder_of, read_about
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LAST_EVENT_SECONDS = 5.0
"""Longest wait for the last event of rank 0."""


def execute_in_processes(job: Job, processes: int, observer: Observer) -> Result:
    """Run a job in several processes and return its result. Ctrl-C is raised after the end of the run is recorded."""
    agent = logging.getLogger("torch.distributed.elastic")  # `_root_cause` reports the same, shorter
    agent.addHandler(logging.NullHandler())
    agent.propagate = False
    with TemporaryDirectory(prefix="cse-run-") as path:
        exchange = Exchange(Path(path))
        exchange.write("job", job)
        with _events_to(exchange, observer):
            _launch(exchange, processes, job.device)
        result: Result | None = exchange.read("result")
    if result is None:
        raise RunFailedError("the processes ended without a result", "run it again", code="jobs.no_result")
    return result


def _launch(exchange: Exchange, processes: int, device: str) -> None:
    """Start the processes and wait until they have ended."""
    try:
        with _signal_handlers_restored(), _environment(processes, device):
            launch = elastic_launch(_config(processes, exchange.path / "logs"), sys.executable)
            launch("-P", "-m", "cse_cli.jobs.rank", str(exchange.path), str(os.getpid()))
    except ChildFailedError as error:
        _send_rest_to_mirrors(exchange)
        raise _root_cause(exchange, error.failures, processes) from None
    except SignalException as signalled:
        _send_rest_to_mirrors(exchange)
        _end_rendezvous(signalled)
        if signalled.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise Terminated(128 + signalled.sigval) from None


@contextmanager
def _events_to(exchange: Exchange, observer: Observer) -> Iterator[None]:
    """Pass the events of rank 0 to an observer, in a thread: torch's agent occupies this one."""

    def serve() -> None:
        with suppress(EOFError, OSError), listener.accept() as channel:
            while (event := channel.recv()) is not None:
                reply = receive(observer, event)
                if event.needs_reply:
                    channel.send(reply)

    with Listener(exchange.address) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError), Client(exchange.address) as last:  # ends a thread without a connection
                last.send(None)
            thread.join(_LAST_EVENT_SECONDS)


def _send_rest_to_mirrors(exchange: Exchange) -> None:
    """Send to the mirrors what the processes of a failed run have not sent."""
    if (run_id := exchange.recorded_run()) is not None:
        follow(read_about(run_id)).close()


def _end_rendezvous(signalled: SignalException) -> None:
    """End the thread that keeps torch's rendezvous alive, which survives a signal.

    It ends when the rendezvous is garbage-collected. If that happens in the thread itself, it fails with a traceback,
    because a thread cannot join itself.
    """
    traceback.clear_frames(signalled.__traceback__)
    gc.collect()


def _config(processes: int, logs: Path) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid4().hex,
        # A free port of the loopback device, without a look-up of the host name.
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
def _signal_handlers_restored() -> Iterator[None]:
    """Restore the handlers that the agent replaces."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _environment(processes: int, device: str) -> Iterator[None]:
    """Set the environment of the processes: their share of the cores, and no warnings from C++."""
    before = dict(os.environ)
    try:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.update(worker_environment(processes, device))
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _root_cause(exchange: Exchange, failures: Mapping[int, ProcessFailure], processes: int) -> CseError:
    """Return the error of the process that failed first, not of those that lost it."""
    errors = {rank: error for rank in sorted(failures) if (error := exchange.read(f"failure-{rank}")) is not None}
    own = {rank: error for rank, error in errors.items() if not isinstance(error, LostRankError)}
    if own:
        rank, error = next(iter(own.items()))
        if rank > 0 and len(own) == 1:
            error.message = f"{_describe(rank, failures[rank], processes)}: {error.message}"
        return error  # type: ignore[no-any-return]
    silent = {rank: failure for rank, failure in failures.items() if rank not in errors}
    rank, failed = min((silent or failures).items(), key=lambda one: (_was_signalled(one[1]), one[0]))
    run_id = exchange.recorded_run()
    action = "run it again" if run_id is None else f"resume it: cse run --resume {run_id[:8]}"
    logs = sorted(exchange.path.glob(f"logs/*/attempt_0/{failed.local_rank}/stderr.log"))
    message = f"{_describe(rank, failed, processes)} {describe_exit(failed.exitcode, logs)}"
    return RunFailedError(message, action, code="jobs.process_died")


def _describe(rank: int, failure: ProcessFailure, processes: int) -> str:
    return f"rank {rank} of {processes} (pid {failure.pid} on {socket.gethostname()})"


def _was_signalled(failure: ProcessFailure) -> bool:
    """Return whether the process was stopped after another one had failed."""
    return any(failure.exitcode in (-number, 128 + number) for number in _SIGNALS)


@dataclass(frozen=True)
class Exchange:
    """Directory through which processes of one run exchange objects. Only its owner can read it.

    The objects are "job", "run" (the run ID), "result", and "failure-N" (the error of rank N).
    """

    path: Path

    @property
    def address(self) -> str:
        """Socket through which rank 0 sends events."""
        return str(self.path / "channel")

    def write(self, name: str, value: object) -> None:
        """Write an object."""
        (self.path / f"{name}.pickle").write_bytes(pickle.dumps(value))

    def read(self, name: str) -> Any:
        """Return an object, or None if it does not exist or its writer was killed."""
        try:
            return pickle.loads((self.path / f"{name}.pickle").read_bytes())  # nosec B301  # `write` wrote it, 0700
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def recorded_run(self) -> str | None:
        """Return the ID of the run, or None if it is not recorded."""
        run_id: str | None = self.read("run")
        return run_id if run_id is not None and (folder_of(run_id) / ABOUT).exists() else None
