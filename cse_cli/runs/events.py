"""Events of a run: `events.jsonl` in its directory, one JSON object per line, append only.

Each event has a `kind` and a `time` in seconds since 1970. A process that is killed leaves at most one incomplete line,
which readers skip and the next writer removes.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from registry.paths import make_folder

FILE = "events.jsonl"
"""Name of the file in a run's directory."""

End = Literal["finished", "failed", "stopped", "pruned"]
Listener = Callable[[str, Mapping[str, Any]], None]
"""Receives kind and data of each event at once, and must be fast: the run waits for it."""
ENDS: tuple[End, ...] = ("finished", "failed", "stopped", "pruned")
"""Kinds of events that end a run. A later "started" resumes it."""

_FIELDS = {
    "metrics": {"step", "values"},
    "system": {"values"},
    "tags": {"values"},
    "dataset": {"name", "digest", "context", "source"},
    "warning": {"text"},
    "progress": {"what", "done", "total"},
    "halted": {"reason"},
    "evaluated": {"step", "scores"},
    "checkpoint": {"step"},
    "file": {"name"},
    "model": {"name", "title", "about"},
}
"""Fields without which an event counts as damaged."""

_LATEST = 1e11
"""A time beyond this one, in the year 5138, is damage."""


class Pruned(Exception):  # noqa: N818 - not an error
    """The search ended the run of a trial early. The run keeps its curve and has no result."""


@dataclass(frozen=True)
class Event:
    """One event. `time` is in seconds since 1970.

    Kinds and their data: "started" (host, pid, command, device, precision, hint, sentences, step, steps), "progress"
    (what, done, total) of slow work, "metrics" (step, values), "system" (values), "tags" (values), "dataset" (name,
    digest, context, source), "warning" (text), "evaluated" (step, scores, best), "checkpoint" (step), "halted" (reason)
    before the last step, "file" (name), "model" (name, title, about), or one of `ENDS` (reason). "failed" also has the
    error (type, message, action, code).
    """

    kind: str
    time: float
    data: dict[str, Any]


class EventLog:
    """Appends events to the file of one run. Several threads may append."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._cut_incomplete_line()

    def append(self, kind: str, **data: Any) -> None:
        """Append an event. If the disk is full, what was written of it is removed."""
        line = json.dumps({"kind": kind, "time": time.time(), **_plain(data)}, ensure_ascii=False) + "\n"
        content = line.encode("utf-8", "surrogatepass")
        written = os.write(self._descriptor, content)
        if written < len(content):  # the disk is full: the second call raises why
            try:
                os.write(self._descriptor, content[written:])
            finally:
                with suppress(OSError):
                    self._cut_incomplete_line()

    def sync(self) -> None:
        """Wait until everything appended is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _cut_incomplete_line(self) -> None:
        size, end = os.fstat(self._descriptor).st_size, b""
        start = size
        while start > 0 and b"\n" not in end:
            start = max(0, start - 65536)
            end = os.pread(self._descriptor, size - start, start)
        whole = start + end.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(self._descriptor, whole)


def read_events(folder: Path, offset: int = 0, *, without: Collection[str] = ()) -> Iterator[tuple[Event, int]]:
    """Yield the complete events of a run from a byte offset, each with the offset behind it.

    A line that is not an event, because the disk damaged it, is yielded as an event of kind "damaged". Events of kinds
    in `without` are skipped without parsing them: metrics are most of a file.
    """
    skipped = tuple(f'{{"kind": "{kind}"'.encode() for kind in without)
    try:
        file = (folder / FILE).open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if not line.startswith(skipped):
                yield _parsed(line), offset


def _parsed(line: bytes) -> Event:
    try:
        content = json.loads(line)
        moment, kind = float(content.pop("time")), str(content.pop("kind"))
        if 0 <= moment < _LATEST and _FIELDS.get(kind, set()) <= content.keys():
            return Event(kind, moment, content)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    return Event("damaged", 0.0, {})


def _plain(value: Any) -> Any:
    """Return a value in which NaN and infinity, which JSON does not have, are strings that `float` reads."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


@dataclass
class History:
    """Everything that the events of a run contain, with repeated steps of a resumed run counted once.

    `starts` are "started" events. `end` is the last event that ended the run, or None while it runs or if its process
    was killed. `checkpoint` is the step of the last one, and `damaged` the number of lines that could not be read.
    """

    starts: list[Event] = field(default_factory=list)
    end: Event | None = None
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)
    """Metric → step → value."""
    system: dict[str, dict[float, float]] = field(default_factory=dict)
    """Measurement of the machine → time → value."""
    tags: dict[str, str] = field(default_factory=dict)
    datasets: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    evaluated: dict[int, dict[str, float]] = field(default_factory=dict)
    checkpoint: int | None = None
    damaged: int = 0

    @property
    def step(self) -> int:
        """Last step that was recorded."""
        resumed = int(self.starts[-1].data.get("step", 0)) if self.starts else 0
        return max([resumed, *self.evaluated, *self.metrics.get("train/loss", {})])

    def add(self, event: Event) -> None:
        """Add the next event. Events of an unknown kind and events with invalid values count as damaged."""
        data = event.data
        try:
            match event.kind:
                case "started":
                    self.starts.append(event)
                    self.end = None
                case "metrics":
                    _add_points(self.metrics, int(data["step"]), data["values"])
                case "system":
                    _add_points(self.system, event.time, data["values"])
                case "tags":
                    self.tags |= data["values"]
                case "dataset":
                    self.datasets.append(data)
                case "warning":
                    self.warnings.append(data["text"])
                case "evaluated":
                    self.evaluated[int(data["step"])] = {key: float(value) for key, value in data["scores"].items()}
                case "checkpoint":
                    self.checkpoint = int(data["step"])
                case kind if kind in ENDS:
                    self.end = event
                case kind if kind not in _FIELDS:
                    self.damaged += 1
        except (ValueError, TypeError, AttributeError, OverflowError):
            self.damaged += 1


def _add_points(series: dict[str, dict[Any, float]], place: float, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        series.setdefault(name, {})[place] = float(value)


def read_history(folder: Path, *, without: Collection[str] = ()) -> History:
    """Return the history of a run, without events of some kinds."""
    history = History()
    for event, _ in read_events(folder, without=without):
        history.add(event)
    return history
