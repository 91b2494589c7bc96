"""Several runs at once, each in a process and on a device of its own; the next one begins where one has ended.

Runs are handed out by the process that was asked for them, so that none needs to be claimed: unlike a study's, they are
nobody else's business.

The folder through which a process is given its run and gives back what became of it.

Several processes at one study: the same command on each device, sharing through claims.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

from cse_cli.core.devices import environment
from cse_cli.core.distributed import LostRankError
from cse_cli.core.results import Result
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError

Say = Callable[[str, str], None]
"""Is given the name of a run and a line it wrote."""


def spread(jobs: Sequence[Job], places: Sequence[str], say: Say) -> list[Result | CseError]:
    """Do jobs, as many at once as there are places, and return what became of each, in their order.

    On Ctrl-C all runs are ended, and record it, before it goes on its way.
    """
    crew = _Crew(places, say)
    with ThreadPoolExecutor(len(places)) as pool:
        futures: list[Future[Result | CseError]] = [pool.submit(crew.do, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            crew.end()
            raise


class _Crew:
    """The processes at work.

    Args:
        places: Devices; one run is on each at a time.
    """

    def __init__(self, places: Sequence[str], say: Say) -> None:
        self._free: SimpleQueue[str] = SimpleQueue()
        for place in places:
            self._free.put(place)
        self._count = len(places)
        self._say = say
        self._lock = Lock()
        self._ended = False
        self._working: set[subprocess.Popen[str]] = set()

    def do(self, job: Job) -> Result | CseError:
        """Do a job on the next free device."""
        place = self._free.get()
        try:
            with Handover.of(replace(job, device=place)) as handover:
                code = self._wait(handover, place, f"{job.name} {place}")
                return handover.result() or _error(handover, code)
        finally:
            self._free.put(place)

    def end(self) -> None:
        """Ask all to end, and start no more."""
        with self._lock:
            self._ended = True
            for process in self._working:
                process.terminate()  # they record the end of their run, so that it can be taken up again

    def _wait(self, handover: Handover, place: str, name: str) -> int:
        with self._lock:
            if self._ended:
                return 0
            process = self._start(handover, place)
            self._working.add(process)
        with process:
            for line in process.stderr or ():
                if line.strip():
                    self._say(name, line.rstrip())
        with self._lock:
            self._working.remove(process)
        return process.returncode

    def _start(self, handover: Handover, place: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cse_cli.runs.worker", str(handover.path), str(os.getpid())],
            env=environment(self._count, place),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends each process once
        )


def _error(handover: Handover, code: int) -> CseError:
    if (failure := handover.failure(0)) is not None:
        return failure.error()
    run_id = handover.run_id()
    action = "run it again" if run_id is None else f"go on with: cse run --resume {run_id[:8]}"
    return RunFailedError(f"its process ended with code {code}", action)


@dataclass(frozen=True)
class Failure:
    """Why a process ended before its run did.

    Args:
        lost: Whether the cause is in another process.
    """

    message: str
    next_action: str | None
    exit_code: int
    lost: bool

    def error(self) -> CseError:
        """Return it as it was raised, for whoever shows it."""
        error = CseError(self.message, self.next_action)
        error.exit_code = self.exit_code
        return error


@dataclass(frozen=True)
class Handover:
    """One run given to one process, or to several together. The folder is readable by its owner alone."""

    path: Path

    @staticmethod
    @contextmanager
    def of(job: Job) -> Iterator[Handover]:
        """Give a job; the folder is deleted after the block."""
        with TemporaryDirectory(prefix="cse-run-") as folder:
            made = Handover(Path(folder))
            made._job.write_bytes(pickle.dumps(job))
            yield made

    def job(self) -> Job:
        """Return what is to be run."""
        job: Job = pickle.loads(self._job.read_bytes())
        return job

    def begun(self, run_id: str) -> None:
        """Keep which run it is, for a message after a death."""
        self._run.write_text(run_id)

    def run_id(self) -> str | None:
        """Return which run has begun."""
        return self._run.read_text() if self._run.exists() else None

    def finish(self, result: Result) -> None:
        """Give the result back."""
        self._result.write_text(result.model_dump_json(), encoding="utf-8")

    def result(self) -> Result | None:
        """Return the result, if the run came to its end."""
        return Result.model_validate_json(self._result.read_bytes()) if self._result.exists() else None

    def fail(self, rank: int, error: CseError) -> None:
        """Give back why a process ends."""
        failure = Failure(error.message, error.next_action, error.exit_code, isinstance(error, LostRankError))
        self._failure(rank).write_text(json.dumps(asdict(failure)), encoding="utf-8")

    def failure(self, rank: int) -> Failure | None:
        """Return what a process said before it ended."""
        file = self._failure(rank)
        return Failure(**json.loads(file.read_bytes())) if file.exists() else None

    @property
    def _job(self) -> Path:
        return self.path / "job.pickle"

    @property
    def _run(self) -> Path:
        return self.path / "run"

    @property
    def _result(self) -> Path:
        return self.path / "result.json"

    def _failure(self, rank: int) -> Path:
        return self.path / f"failure-{rank}.json"


"""Is given the name of a worker and a line it wrote."""


@dataclass(frozen=True)
class Ended:
    """What a worker leaves behind.

    Args:
        report: What it wrote on stdout; None where it died before.
    """

    name: str
    code: int
    report: dict[str, Any] | None


def share(arguments: Sequence[str], places: Sequence[str], say: Say) -> list[Ended]:
    """Run `cse run` with these arguments on every device at once, and return when the last has ended."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(len(places))]
        started = [_start(arguments, place, file, len(places)) for place, file in zip(places, files, strict=True)]
        names = [f"{number} {place}" for number, place in enumerate(places, 1)]
        readers = [
            Thread(target=_tell, args=(process, name, say), daemon=True)
            for process, name in zip(started, names, strict=True)
        ]
        try:
            for reader in readers:
                reader.start()
            for process in started:
                process.wait()
        except BaseException:
            for process in started:
                process.terminate()  # they record the end of their run, so that it can be taken up again
            raise
        finally:
            for process in started:
                process.wait()
            for reader in filter(Thread.is_alive, readers):
                reader.join()  # also of those that were asked to end: they say how to go on
        return [
            Ended(name, process.returncode, _report(file))
            for name, process, file in zip(names, started, files, strict=True)
        ]


def _start(arguments: Sequence[str], place: str, file: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cse_cli", "run", *arguments, "--device", place, "--worker"]
    with file.open("wb") as out:
        # A session of its own: Ctrl-C reaches the parent alone, which ends each worker once.
        return subprocess.Popen(
            command,
            env=environment(count, place),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def _tell(process: subprocess.Popen[str], name: str, say: Say) -> None:
    for line in process.stderr or ():
        if line.strip():
            say(name, line.rstrip())


def _report(file: Path) -> dict[str, Any] | None:
    with suppress(ValueError):
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return report
    return None
