"""One run by several processes of this machine: started, watched, and ended together by torch's elastic agent.

Each is `python -m cse_cli.launch`, a command and no forked or spawned function: it begins without the state of this
process, is the leader of a session of its own, so that Ctrl-C at the terminal reaches this process alone, and finds the
same environment as one that torchrun started. Its run travels as a file.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from cse_cli.home import runs
from cse_cli.job import Job
from cse_cli.launch.handover import Handover
from cse_cli.processes.leaving import PATIENT_SECONDS
from cse_cli.processes.threads import VARIABLE, environment
from cse_cli.results import Result
from cse_cli.tracking import Terminated
from registry.errors import CseError, RunFailedError

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
                launch("-m", "cse_cli.launch", str(handover.path), str(os.getpid()))
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
