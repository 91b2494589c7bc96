"""Several runs at once, each in a process and on a device of its own; the next one begins where one has ended.

Runs are handed out by the process that was asked for them, so that none needs to be claimed: unlike a study's, they are
nobody else's business.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock

from cse_cli.job import Job
from cse_cli.launch.handover import Handover
from cse_cli.processes.threads import environment
from cse_cli.results import Result
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
            [sys.executable, "-m", "cse_cli.launch", str(handover.path), str(os.getpid())],
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
