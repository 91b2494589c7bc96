"""The runs that are running now, read from their events, logs and locks, which any process may read."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cse_cli.core.paths import runs
from cse_cli.runs.events import FILE, Event, History, read_events
from cse_cli.runs.index import RecordedRun, read_index
from cse_cli.runs.record import About, folder_of, log_of, read_about
from registry.errors import CseError

SILENT_SECONDS = 300.0
"""A run that has recorded nothing for this long is shown as silent: it scores, or its machine is down."""

_LOST_SECONDS = 24 * 3600.0
"""How long a lost run is shown after it recorded something."""
_RECENT_STEPS = 50
"""Recorded steps that the rate of a run is measured over."""
_TAIL_BYTES = 4096
_STAMP = len("2026-11-23 09:30:00  ")


@dataclass(frozen=True)
class LiveRun:
    """How far a run is.

    Args:
        run_id: ID of the run.
        recipe: Name or path by which the recipe was requested.
        seed: Seed of the run, or None for a search.
        host: Machine that it runs on.
        pid: Its process there: the first one of several.
        device: Device that it trains on.
        started: Seconds since 1970 at which it was started or resumed.
        updated: Seconds since 1970 at which it last recorded something other than measurements of the machine.
        step: Last recorded step.
        steps: Number of steps.
        metric: Name of the score `dev`, "evaluator.metric", or None before the first evaluation.
        dev: Score of the last evaluation.
        seconds_left: Estimated time for the remaining steps, from the rate of the recent ones, or None.
        last_line: Last line of its log.
        lost: Whether its process was killed or its machine went down.
    """

    run_id: str
    recipe: str
    seed: int | None
    host: str
    pid: int
    device: str
    started: float
    updated: float
    step: int
    steps: int
    metric: str | None
    dev: float | None
    seconds_left: float | None
    last_line: str
    lost: bool

    @property
    def silent_seconds(self) -> float:
        """Time since it last recorded something."""
        return time.time() - self.updated


class LiveRuns:
    """Follows all runs of the state directory. Each `read` parses only what was recorded since the one before."""

    def __init__(self) -> None:
        self._ended: dict[str, int] | None = None
        """ID of each run that ended → time of its file of events, which changes if the run is resumed."""
        self._followed: dict[str, _Followed] = {}

    def read(self) -> list[LiveRun]:
        """Return the runs that are running or were lost in the last 24 hours, the one that started last first."""
        if self._ended is None:
            ended = [run.run_id for run in read_index().runs if run.end is not None]
            self._ended = {run_id: _changed(run_id) for run_id in ended}
        found = []
        for run_id in _recorded():
            if self._ended.get(run_id) == (changed := _changed(run_id)):
                continue
            with suppress(CseError):  # `cse runs ls` and `cse doctor` name damaged runs
                run = self._followed.get(run_id) or _Followed(read_about(run_id))
                self._followed[run_id] = run
                if run.advance():
                    self._ended[run_id] = changed
                elif (live := run.live()) is not None:
                    found.append(live)
        return sorted(found, key=lambda run: (run.started, run.run_id), reverse=True)


class _Followed:
    """Reads the events of one run as they are appended."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._history = History()
        self._offset = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_STEPS)
        self._updated = about.created.timestamp()
        self._step = 0

    def advance(self) -> bool:
        """Read new events, and return whether the run has ended."""
        for event, offset in read_events(self._about.path, self._offset, without=("system",)):
            self._offset = offset
            self._history.add(event)
            self._updated = max(self._updated, event.time)
            self._step = int(event.data.get("step", self._step))  # of a resumed run, less than before
            if event.kind == "started":
                self._recent.clear()
            elif event.kind == "metrics" and "train/loss" in event.data.get("values", {}):
                self._recent.append((event.time, self._step))
        return self._history.end is not None

    def live(self) -> LiveRun | None:
        """Return how far the run is, or None if it was lost long ago."""
        lost = RecordedRun(self._about).state == "LOST"
        if lost and time.time() - self._updated > _LOST_SECONDS:
            return None
        start = self._history.starts[-1] if self._history.starts else Event("started", self._updated, {})
        steps = int(start.data.get("steps", 0))
        metric, dev = next(iter(self._dev().items()), (None, None))
        return LiveRun(
            run_id=self._about.run_id,
            recipe=self._about.recipe or self._about.name,
            seed=self._about.seed,
            host=str(start.data.get("host", "")),
            pid=int(start.data.get("pid", 0)),
            device=str(start.data.get("device", "")),
            started=start.time,
            updated=self._updated,
            step=self._step,
            steps=steps,
            metric=metric,
            dev=dev,
            seconds_left=self._seconds_left(steps - self._step),
            last_line=last_line(log_of(self._about.run_id)),
            lost=lost,
        )

    def _dev(self) -> dict[str, float]:
        evaluated = self._history.evaluated
        return evaluated[max(evaluated)] if evaluated else {}

    def _seconds_left(self, steps: int) -> float | None:
        if len(self._recent) < 2:
            return None
        (first_time, first), (last_time, last) = self._recent[0], self._recent[-1]
        return (last_time - first_time) / max(1, last - first) * steps


def last_line(log: Path) -> str:
    """Return the last line of a run's log, without the time at which it was printed."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = file.read().decode(errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last[_STAMP:].strip()


def _recorded() -> Iterator[str]:
    with suppress(OSError):
        yield from (entry.name for entry in os.scandir(runs()) if not entry.name.startswith("."))


def _changed(run_id: str) -> int:
    with suppress(OSError):
        return (folder_of(run_id) / FILE).stat().st_mtime_ns
    return 0
