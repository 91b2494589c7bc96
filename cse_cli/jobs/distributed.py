"""One run in several processes of this machine: started, watched, and ended together by torch's elastic agent.

Each process finds the same environment as one that torchrun started, and its job in a folder that only its owner can
read. Rank 0 tells this process through a socket in that folder how the run goes, so that the observer stays here.
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
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from cse_cli.core.console import Observer, RunInfo
from cse_cli.core.devices import THREADS_VARIABLE, worker_environment
from cse_cli.core.distributed import LostRankError
from cse_cli.core.paths import runs
from cse_cli.core.processes import PATIENT_SECONDS
from cse_cli.core.results import Result
from cse_cli.jobs.channel import hear
from cse_cli.mirrors import follow
from cse_cli.runs.record import ABOUT, read_about
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOG_LINES = 12
_LAST_WORDS_SECONDS = 5.0
"""How long what rank 0 told last may take to be heard."""


def run_in_processes(job: Job, processes: int, observer: Observer) -> Result:
    """Run a job in several processes and return its result.

    Raises:
        CseError: A process could not start or failed, with its own message, or was killed.
        KeyboardInterrupt: Ctrl-C; the run's end is recorded.
    """
    agent = logging.getLogger("torch.distributed.elastic")  # `_root_cause` says what it logs, shorter
    agent.addHandler(logging.NullHandler())
    agent.propagate = False
    with JobFolder.of(job) as folder, _heard(folder, observer):
        try:
            with _signal_handlers_restored(), _environment(processes, job.device):
                launch = elastic_launch(_config(processes, folder.path / "logs"), sys.executable)
                launch("-P", "-m", "cse_cli.jobs.rank", str(folder.path), str(os.getpid()))
        except ChildFailedError as error:
            _mirror_rest(folder)
            raise _root_cause(folder, error.failures, processes) from None
        except SignalException as signalled:
            _mirror_rest(folder)
            _end_rendezvous(signalled)
            if signalled.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise Terminated(128 + signalled.sigval) from None
        result = folder.result()
    if result is None:
        raise RunFailedError("the processes ended without a result", "run it again")
    return result


@contextmanager
def _heard(folder: JobFolder, observer: Observer) -> Iterator[None]:
    """Let an observer hear rank 0, in a thread: torch's agent has this one."""

    def serve() -> None:
        with listener.accept() as channel:
            while (call := channel.recv()) is not None:
                answer = hear(observer, call)
                if call.asks:
                    channel.send(answer)

    def until_gone() -> None:
        with suppress(EOFError, OSError):
            serve()

    with Listener(folder.address) as listener:
        thread = Thread(target=until_gone, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError), Client(folder.address) as last:  # wakes a thread that nobody has called
                last.send(None)
            thread.join(_LAST_WORDS_SECONDS)


def _mirror_rest(folder: JobFolder) -> None:
    """Send to the mirrors what the processes of a run that failed have not."""
    run_id = folder.run_id()
    if run_id is not None and (runs() / run_id / ABOUT).exists():
        follow(read_about(run_id)).close()


def _end_rendezvous(signalled: SignalException) -> None:
    """End the thread that keeps torch's rendezvous alive, which a signal leaves at work, from this thread.

    It ends when the rendezvous is collected as garbage. Where that thread itself did so, a traceback was printed: none
    can wait for its own end.
    """
    traceback.clear_frames(signalled.__traceback__)
    gc.collect()


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
    """Give the processes, which start with this one's environment, their share of the cores, and keep C++ quiet."""
    before = dict(os.environ)
    threads = worker_environment(processes, device).get(THREADS_VARIABLE)
    try:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings are about how training is written
        if threads is not None:
            os.environ[THREADS_VARIABLE] = threads
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _root_cause(folder: JobFolder, failures: Mapping[int, ProcessFailure], processes: int) -> CseError:
    """Return the error of the process that failed first, not of those that lost it."""
    told = {rank: error for rank in sorted(failures) if (error := folder.failure(rank)) is not None}
    own = {rank: error for rank, error in told.items() if not isinstance(error, LostRankError)}
    if own:
        rank, error = next(iter(own.items()))
        if rank > 0 and len(own) == 1:
            error.message = f"{_named(rank, failures[rank], processes)}: {error.message}"
        return error
    silent = {rank: failure for rank, failure in failures.items() if rank not in told}
    rank, failed = min((silent or failures).items(), key=lambda one: (_was_signalled(one[1]), one[0]))
    run_id = folder.run_id()
    known = run_id is not None and (runs() / run_id / ABOUT).exists()
    action = f"go on with: cse run --resume {run_id[:8]}" if known and run_id else "it had not begun: run it again"
    return RunFailedError(f"{_named(rank, failed, processes)} {_how_ended(failed, folder)}", action)


def _named(rank: int, failure: ProcessFailure, processes: int) -> str:
    return f"rank {rank} of {processes} (pid {failure.pid} on {socket.gethostname()})"


def _was_signalled(failure: ProcessFailure) -> bool:
    """Return whether it ended because it was asked to, after another one had failed."""
    return any(failure.exitcode in (-number, 128 + number) for number in _SIGNALS)


def _how_ended(failure: ProcessFailure, folder: JobFolder) -> str:
    if failure.exitcode < 0:
        what = f"was ended by {failure.signal_name()}"
        maybe = "; the kernel does so where memory runs out" if failure.exitcode == -signal.SIGKILL else ""
        return what + maybe
    logs = sorted(folder.path.glob(f"logs/*/attempt_0/{failure.local_rank}/stderr.log"))
    lines = logs[0].read_text(encoding="utf-8", errors="replace").strip().split("\n") if logs else []
    return "\n  ".join([f"ended with code {failure.exitcode}:", *lines[-_LOG_LINES:]])


@dataclass(frozen=True)
class JobFolder:
    """One job given to several processes. The folder is readable by its owner alone."""

    path: Path

    @staticmethod
    @contextmanager
    def of(job: Job) -> Iterator[JobFolder]:
        """Give a job; the folder is deleted after the block."""
        with TemporaryDirectory(prefix="cse-run-") as path:
            folder = JobFolder(Path(path))
            (folder.path / "job.pickle").write_bytes(pickle.dumps(job))
            yield folder

    def job(self) -> Job:
        """Return what is to be run."""
        job: Job = pickle.loads((self.path / "job.pickle").read_bytes())  # nosec B301  # `of` wrote it, 0700
        return job

    @property
    def address(self) -> str:
        """The socket through which rank 0 tells how the run goes."""
        return str(self.path / "channel")

    def begin(self, run: RunInfo) -> None:
        """Keep which run it is, for a message after a death."""
        (self.path / "run").write_text(run.run_id)

    def run_id(self) -> str | None:
        """Return which run has begun."""
        file = self.path / "run"
        return file.read_text() if file.exists() else None

    def finish(self, result: Result) -> None:
        """Give the result back."""
        (self.path / "result.json").write_text(result.model_dump_json(), encoding="utf-8")

    def result(self) -> Result | None:
        """Return the result, if the run came to its end."""
        file = self.path / "result.json"
        return Result.model_validate_json(file.read_bytes()) if file.exists() else None

    def fail(self, rank: int, error: CseError) -> None:
        """Give back why a process ends."""
        (self.path / f"failure-{rank}.pickle").write_bytes(pickle.dumps(error))

    def failure(self, rank: int) -> CseError | None:
        """Return the error that a process gave back before it ended."""
        file = self.path / f"failure-{rank}.pickle"
        if not file.exists():
            return None
        error: CseError = pickle.loads(file.read_bytes())  # nosec B301  # `fail` wrote it, 0700
        return error
