"""Jobs in processes of their own, as many at once as there are devices.

A process gets its job and gives back what became of it through a folder. Each is `python -m cse_cli.runs.worker`: a
command and not a forked or spawned function, so that it begins without the state of this process, and the leader of a
session of its own, so that Ctrl-C at the terminal reaches this process alone, which ends each run once.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock

from cse_cli.core.devices import worker_environment
from cse_cli.core.distributed import LostRankError
from cse_cli.core.results import Result
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError

LineWriter = Callable[[str, str], None]
"""Is given the name of a process and a line it wrote."""


def run_jobs_at_once(jobs: Sequence[Job], devices: Sequence[str], write: LineWriter) -> list[Result | CseError]:
    """Run jobs, as many at once as there are devices, and return what became of each, in their order.

    On Ctrl-C all runs are ended, and recorded as ended, before it is raised.
    """
    pool = _ProcessPool(devices, write)
    with ThreadPoolExecutor(len(devices)) as threads:
        futures = [threads.submit(pool.run, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            pool.end()
            raise


class _ProcessPool:
    """The processes of several runs at once; one run is on each device at a time."""

    def __init__(self, devices: Sequence[str], write: LineWriter) -> None:
        self._free: SimpleQueue[str] = SimpleQueue()
        for device in devices:
            self._free.put(device)
        self._count = len(devices)
        self._write = write
        self._lock = Lock()
        self._ended = False
        self._running: set[subprocess.Popen[str]] = set()

    def run(self, job: Job) -> Result | CseError:
        """Run a job on the next free device."""
        device = self._free.get()
        try:
            with JobFolder.of(replace(job, device=device)) as folder:
                code = self._wait(folder, device, f"{job.name} {device}")
                return folder.result() or _error(folder, code)
        finally:
            self._free.put(device)

    def end(self) -> None:
        """Ask all processes to end, and start no more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()  # they record the end of their run, so that it can be resumed

    def _wait(self, folder: JobFolder, device: str, name: str) -> int:
        with self._lock:
            if self._ended:
                return 0
            command = [sys.executable, "-m", "cse_cli.runs.worker", str(folder.path), str(os.getpid())]
            process = start_process(command, device, self._count, stdout=subprocess.DEVNULL)
            self._running.add(process)
        with process:
            write_lines(process, name, self._write)
        with self._lock:
            self._running.remove(process)
        return process.returncode


def start_process(command: Sequence[str], device: str, count: int, stdout: int) -> subprocess.Popen[str]:
    """Start one of `count` processes at once, in a session of its own, its stderr as a pipe."""
    return subprocess.Popen(
        command,
        env=worker_environment(count, device),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def write_lines(process: subprocess.Popen[str], name: str, write: LineWriter) -> None:
    """Pass on the lines that a process writes on stderr, until it closes it."""
    for line in process.stderr or ():
        if line.strip():
            write(name, line.rstrip())


def _error(folder: JobFolder, code: int) -> CseError:
    if (failure := folder.failure(0)) is not None:
        return failure.error
    run_id = folder.run_id()
    action = "run it again" if run_id is None else f"go on with: cse run --resume {run_id[:8]}"
    return RunFailedError(f"its process ended with code {code}", action)


@dataclass(frozen=True)
class Failure:
    """Why a process ended before its run did.

    Args:
        error: As it was raised, for whoever shows it.
        lost: Whether the cause is in another process.
    """

    error: CseError
    lost: bool


@dataclass(frozen=True)
class JobFolder:
    """One job given to one process, or to several together. The folder is readable by its owner alone."""

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
        job: Job = pickle.loads((self.path / "job.pickle").read_bytes())
        return job

    def begin(self, run_id: str) -> None:
        """Keep which run it is, for a message after a death."""
        (self.path / "run").write_text(run_id)

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
        lost = isinstance(error, LostRankError)
        failure = {"message": error.message, "action": error.next_action, "code": error.exit_code, "lost": lost}
        (self.path / f"failure-{rank}.json").write_text(json.dumps(failure), encoding="utf-8")

    def failure(self, rank: int) -> Failure | None:
        """Return what a process gave back before it ended."""
        file = self.path / f"failure-{rank}.json"
        if not file.exists():
            return None
        failure = json.loads(file.read_bytes())
        error = CseError(failure["message"], failure["action"])
        error.exit_code = failure["code"]
        return Failure(error, failure["lost"])
