"""How far the runs at work are: a small file in each run's folder, read by whoever wants to watch."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import psutil

from cse_cli.core.console import RunInfo, to_json
from cse_cli.core.paths import runs
from cse_cli.core.processes import is_alive
from cse_cli.core.run_folder import STATUS
from cse_cli.core.run_lock import is_held
from registry.paths import write_atomically

LONG_SILENCE = 300.0
"""Seconds without a word after which lists say so of a run: it scores, or its machine is gone."""


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, as `status.json` in its folder says it.

    Args:
        host: Machine that it runs on.
        pid: Its process there; of several, the first one.
        process_started: When that process began, in seconds since 1970: process ids are used again.
        started: When training began or went on.
        updated: When this was written.
        metric: What `dev` is, "evaluator.metric"; None before the first score.
        dev: Dev score of the last evaluation.
        seconds_left: Of its training, by the steps so far; None before the first.
        last_line: Of its log.
    """

    run_id: str
    recipe: str
    seed: int
    host: str
    pid: int
    process_started: float
    device: str
    started: str
    updated: str
    step: int
    steps: int
    metric: str | None = None
    dev: float | None = None
    seconds_left: float | None = None
    last_line: str = ""

    @staticmethod
    def of(run: RunInfo) -> RunStatus:
        """Return the status of a run that begins in this process."""
        return RunStatus(
            run_id=run.run_id,
            recipe=run.recipe,
            seed=run.seed,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_started=psutil.Process().create_time(),
            device=run.device,
            started=_now(),
            updated=_now(),
            step=run.done,
            steps=run.steps,
        )

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended without a word, which only its own machine can tell."""
        if self.host != socket.gethostname():
            return False
        held = is_held(self.run_id)
        return not (is_alive(self.pid, str(self.process_started)) if held is None else held)

    @property
    def silent_seconds(self) -> float:
        """How long ago it was written."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.updated)).total_seconds()

    def write(self) -> None:
        """Write it with the present time."""
        write_atomically(_file(self.run_id), to_json({**asdict(self), "updated": _now()}))


def read_status(run_id: str) -> RunStatus | None:
    """Return how far a run is; None where it is not at work."""
    return _read(_file(run_id))


def is_at_work(run_id: str) -> bool:
    """Tell whether the process of a run of this state directory is at it."""
    if is_held(run_id):
        return True
    status = read_status(run_id)
    return status is not None and not status.is_gone


def heard_of_lately() -> list[RunStatus]:
    """Return how far the runs are that are neither gone nor long silent: whatever they use must stay as it is."""
    return [run for run in all_statuses() if not run.is_gone and run.silent_seconds < LONG_SILENCE]


def all_statuses() -> list[RunStatus]:
    """Return how far the runs of this state directory are that are at work or gone, the newest first."""
    found = [status for file in runs().glob(f"*/{STATUS}") if (status := _read(file)) is not None]
    return sorted(found, key=lambda status: (status.started, status.run_id), reverse=True)


def forget_status(run_id: str) -> None:
    """Say nothing more of a run that has ended."""
    _file(run_id).unlink(missing_ok=True)


def _read(file: Path) -> RunStatus | None:
    known = {field.name for field in fields(RunStatus)}
    with suppress(OSError, ValueError, TypeError):  # the run ends just now, or another version wrote it
        return RunStatus(**{key: value for key, value in json.loads(file.read_bytes()).items() if key in known})
    return None


def _file(run_id: str) -> Path:
    return runs() / run_id / STATUS


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
