"""Execution of claimed runs: one by one in this process, in child processes, or on the nodes of a cluster.

A run is its ID everywhere. The driver, which is the process of the command, follows the events of each run in its file,
and learns the end from its record. If the process of a run dies, a new one continues from the last checkpoint.
"""

from __future__ import annotations

import shutil
import time
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cse_cli.core.garbage import free_memory
from cse_cli.core.results import Result
from cse_cli.core.threads import PORTABLE, worker_environment
from cse_cli.jobs.child import LEAVE_SECONDS, Child
from cse_cli.jobs.request import Placement
from cse_cli.jobs.worker import BUSY
from cse_cli.runs.claim import BusyError, Claimed
from cse_cli.runs.events import FILE, Listener, Pruned, read_events, read_history
from cse_cli.runs.index import read_run
from cse_cli.runs.record import RECIPE, answer, folder_of, read_about, stop_requested
from cse_cli.training.run import train
from registry import errors
from registry.errors import CseError, RunFailedError, StopRequested

if TYPE_CHECKING:
    from cse_cli.jobs.cluster import RayProcess

MOST_RETRIES = 3
"""Number of times that a run is continued after its process died."""
WAIT_SECONDS = 0.5
"""Longest time that `Engine.ended` waits."""
_POLL_SECONDS = 0.05


@dataclass
class _Active:
    """Run that a process executes. `position` is the offset of the next event, and `seen_at` the time of the last."""

    claimed: Claimed
    listener: Listener
    device: str
    process: Child | RayProcess
    position: int
    seen_at: float
    is_trial: bool
    deaths: int = 0


class Engine:
    """Executes runs. A context manager that stops all runs if its block is left by an exception."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._cluster = None
        if placement.cluster is not None:
            from cse_cli.jobs.cluster import Cluster  # imports Ray

            self._cluster = Cluster(placement)
        self._active: dict[str, _Active] = {}
        self._ended: list[tuple[str, Result | Exception]] = []
        self._has_run = False

    @property
    def slots(self) -> int:
        """Number of runs in parallel. It may change on a cluster."""
        return max(1, len(self._placement.devices)) if self._cluster is None else self._cluster.slots

    @property
    def device(self) -> str | None:
        """Device of a run, or None on a cluster."""
        return None if self._cluster is not None else next(iter(self._placement.devices), self._placement.device)

    def start(self, claimed: Claimed, listener: Listener) -> None:
        """Start a run. If this process executes it, that is done when this returns.

        A signal then raises its exception here, after the end of the run is recorded.
        """
        one_by_one = self._cluster is None and not self._placement.devices and not _is_portable(claimed.run_id)
        if not one_by_one or self._placement.processes > 1:
            used = [active.device for active in self._active.values()]
            devices = self._placement.devices or (self._placement.device,)
            device = next((one for one in devices if used.count(one) < devices.count(one)), devices[0])
            file = folder_of(claimed.run_id) / FILE
            position = file.stat().st_size if file.exists() else 0
            followed = self._spawn(claimed.run_id, device), position, time.monotonic()
            is_trial = read_about(claimed.run_id).trial is not None
            self._active[claimed.run_id] = _Active(claimed, listener, device, *followed, is_trial)
            return
        if self._has_run:
            free_memory()
        self._has_run = True
        try:
            self._ended.append((claimed.run_id, train(claimed.run_id, self._placement.device, listener)))
        except Exception as error:
            self._ended.append((claimed.run_id, error))
        finally:
            release(claimed)

    def ended(self) -> list[tuple[str, Result | Exception]]:
        """Return the runs that have ended with their results or errors, after at most `WAIT_SECONDS`."""
        until = time.monotonic() + WAIT_SECONDS
        while self._active and not self._ended and time.monotonic() < until:
            self._follow()
            time.sleep(_POLL_SECONDS)
        ended, self._ended = self._ended, []
        return ended

    def _spawn(self, run_id: str, device: str) -> Child | RayProcess:
        if self._cluster is not None:
            return self._cluster.start(run_id)
        environment = worker_environment(self.slots, device) | (PORTABLE if _is_portable(run_id) else {})
        return Child(run_id, device, environment, self._placement.processes)

    def _follow(self) -> None:
        """Pass on new events, and find processes that have ended or hang."""
        for run_id, active in list(self._active.items()):
            code = active.process.exit_code()  # before reading, so that the last events are read
            for event, end in read_events(folder_of(run_id), active.position):
                active.position, active.seen_at = end, time.monotonic()
                active.listener(event.kind, event.data)
                if event.kind == "evaluated" and active.is_trial:
                    answer(run_id, event.data["step"])
            silence = time.monotonic() - active.seen_at
            if code is not None:
                self._end(active, code)
            elif silence > self._placement.stall_timeout:
                active.process.kill()
                self._lose(active, f"was killed: no progress report for {self._placement.stall_timeout:,.0f} s")

    def _end(self, active: _Active, code: int) -> None:
        run = read_run(active.claimed.run_id)
        if code == BUSY:
            self._settle(active, BusyError(run))
        elif run.end == "finished" and run.result is not None:
            self._settle(active, run.result)
        elif run.end is None or (run.end == "stopped" and code != StopRequested.exit_code):
            self._lose(active, active.process.describe_exit())
        else:
            self._settle(active, recorded_error(run.run_id))

    def _lose(self, active: _Active, reason: str) -> None:
        """Start a new process for a run whose process died, or fail the run after `MOST_RETRIES`."""
        run_id, active.deaths = active.claimed.run_id, active.deaths + 1
        short = run_id[:8]
        if active.deaths > MOST_RETRIES:
            resume = f"resume it: cse run --resume {short}" if is_started(run_id) else "run it again"
            message = f"{active.deaths} processes died, the last one {reason}. Log: cse runs logs {short}"
            self._settle(active, RunFailedError(message, resume, code="jobs.process_died"))
            return
        how = f"continuing run {short} from its last checkpoint" if is_started(run_id) else "starting it again"
        active.listener("warning", {"text": f"{read_about(run_id).name}: its process {reason}; {how}"})
        active.seen_at = time.monotonic()
        active.process = self._spawn(run_id, active.device)

    def _settle(self, active: _Active, end: Result | Exception) -> None:
        del self._active[active.claimed.run_id]
        self._ended.append((active.claimed.run_id, end))
        release(active.claimed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes. A second Ctrl-C, while runs record their end, kills them immediately."""
        try:
            for active in self._active.values():
                active.process.stop()
            until = time.monotonic() + LEAVE_SECONDS
            while time.monotonic() < until and any(a.process.exit_code() is None for a in self._active.values()):
                time.sleep(_POLL_SECONDS)
        finally:
            for active in self._active.values():
                active.process.kill()
                release(active.claimed)
            self._active.clear()
            if self._cluster is not None:
                self._cluster.close()


def _is_portable(run_id: str) -> bool:
    recipe = tomllib.loads((folder_of(run_id) / RECIPE).read_text(encoding="utf-8"))
    return bool(recipe.get("train", {}).get("portable"))


def recorded_error(run_id: str) -> Exception:
    """Return the error with which a run ended, from its record."""
    end = read_history(folder_of(run_id), without=("metrics", "system")).end
    data = {} if end is None else end.data
    if end is not None and end.kind == "pruned":
        return Pruned(data["reason"])
    if end is not None and end.kind == "stopped":
        return stop_requested(run_id)
    kind: type[CseError] = getattr(errors, data.get("type", ""), RunFailedError)
    return kind(data.get("message") or data.get("reason", ""), data.get("action"), code=data.get("code", ""))


def release(claimed: Claimed) -> None:
    """Give up the claim of a run that has ended. A new run that never started leaves no record."""
    if claimed.is_new and not is_started(claimed.run_id):
        shutil.rmtree(folder_of(claimed.run_id), ignore_errors=True)
    claimed.lock.release()


def is_started(run_id: str) -> bool:
    """Return whether a run has a record of its start."""
    return any(event.kind == "started" for event, _ in read_events(folder_of(run_id), without=("metrics",)))
