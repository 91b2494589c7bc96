"""Send the events of runs to a mirror: of one run from the offset of the last event, or of all runs that it lacks."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cse_cli.core.environment import without_password
from cse_cli.mirrors.mirror import GoneError, Mirror, RefusedError, State, Target, state_file
from cse_cli.runs.events import ENDS, FILE, Event, read_events
from cse_cli.runs.index import recorded_ids
from cse_cli.runs.lock import FileLock, is_held
from cse_cli.runs.record import About, folder_of, lock_of, read_about
from registry.errors import CseError

STEP_SECONDS = 10.0
"""Time after which a tracker that has not accepted a batch of events counts as not responding."""
UPLOAD_SECONDS = 120.0
"""The same for files, and for creating a database."""
_PARENT_SECONDS = 10.0
_BATCH = 500
_UPLOADS = ("file", "model")

Batch = list[tuple[Event, int]]
"""Events, each with the offset behind it."""


class NewEvents:
    """The events of a run behind an offset, with each step of a metric once.

    A resumed run repeats the steps after its last checkpoint, with equal values. Later repetitions are skipped.
    """

    def __init__(self, folder: Path, offset: int) -> None:
        self._folder, self._offset, self._position = folder, offset, 0
        self._seen: set[tuple[str, int]] = set()

    def read(self) -> Iterator[tuple[Event, int]]:
        """Yield the events that were not read before, each with the offset behind it."""
        for event, position in read_events(self._folder, self._position):
            self._position = position
            once = self._once(event) if event.kind == "metrics" else event
            if position > self._offset:
                yield once, position

    def _once(self, event: Event) -> Event:
        step, values = int(event.data["step"]), event.data["values"]
        new = {key: float(value) for key, value in values.items() if (key, step) not in self._seen}
        self._seen.update((key, step) for key in new)
        return replace(event, data={"step": step, "values": new})


class Sender:
    """Sends one run to one mirror, and connects first without a target. A lock lets only one process send a run."""

    def __init__(self, about: About, kind: type[Mirror], target: Target | None = None) -> None:
        self._about, self._kind, self._connected = about, kind, target
        self._lock = FileLock(state_file(about.run_id, kind.name).with_suffix(".lock"))
        self._mirror: Mirror | None = None
        self._state = State(uri="")
        self._has_warned = False
        self.deadline = float("inf")
        """Time (`time.monotonic`) at which the current request counts as not responding."""

    def begin(self, seconds: float = 0.0) -> bool:
        """Acquire the lock, and return whether that succeeded."""
        return self._lock.acquire(seconds)

    def end(self) -> None:
        """Close the mirror and release the lock."""
        self._close()
        self._lock.release()

    def send(self) -> None:
        """Send all new events. After an exception, which is `GoneError` for a deleted run, the next call continues."""
        try:
            mirror = self._mirror = self._mirror or self._open()
            for batch in self._batches():
                events = [event for event, _ in batch]
                is_upload = any(event.kind in _UPLOADS for event in events)
                self._allow(UPLOAD_SECONDS if is_upload else STEP_SECONDS)
                self._deliver(mirror, events)
                self._state.offset = batch[-1][1]
                self._state.ended = events[-1].kind in (*ENDS, "lost")
                self._state.write(self._about.run_id, self._kind.name)
        except GoneError as error:
            self._close()
            if self._kind.connect() == self._target:
                self._give_up(error)
            self.send()  # a new database replaced the one that contained the run
        except Exception:
            self._close()
            raise

    def _allow(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds

    def _open(self) -> Mirror:
        self._allow(UPLOAD_SECONDS)
        self._target, self._connected = self._connected or self._kind.connect(), None
        self._allow(STEP_SECONDS)
        state = State.read(self._about.run_id, self._kind.name)
        if state is None or not state.is_in(self._target):
            state = State(uri=self._target.uri, database=self._target.database)
        if state.gone:
            raise GoneError(state.gone)
        mirror = self._kind(self._about, self._target)
        parent = "" if state.id else parent_id(self._about, self._kind, self._target)
        state.id = mirror.open(state.id, parent)
        state.write(self._about.run_id, self._kind.name)
        self._state, self._events = state, NewEvents(self._about.path, state.offset)
        return mirror

    def _batches(self) -> Iterator[Batch]:
        """Yield the new events: up to 500 together, but a model separately."""
        batch: Batch = []
        for event, offset in self._events.read():
            if batch and (len(batch) == _BATCH or "model" in (event.kind, batch[-1][0].kind)):
                yield batch
                batch = []
            batch.append((event, offset))
        if batch:
            yield batch
        if not self._state.ended and is_held(lock_of(self._about.run_id)) is False:
            # The process has exited. It may have appended events just before.
            yield [*self._events.read()] or [(Event("lost", _last_change(self._about), {}), self._state.offset)]

    def _deliver(self, mirror: Mirror, events: list[Event]) -> None:
        """Send events together, or one by one if the tracker rejects one of them."""
        try:
            mirror.send(events)
        except RefusedError as error:
            if len(events) > 1:
                for event in events:
                    self._deliver(mirror, [event])
            elif not self._has_warned:
                self._has_warned = True
                warn(
                    f"{self._kind.name} rejected an event of run {self._about.short} ({events[0].kind}): "
                    f"{reason(error)}. The other events are sent"
                )

    def _give_up(self, error: GoneError) -> None:
        state = State.read(self._about.run_id, self._kind.name) or self._state
        if not state.gone:
            state.uri, state.database, state.gone = self._target.uri, self._target.database, reason(error)
            state.write(self._about.run_id, self._kind.name)
            warn(
                f"run {self._about.short} ({self._about.name}) is no longer sent to {self._kind.name}: {state.gone}. "
                "Its record is complete. To send it again: cse runs sync --again"
            )
        raise error

    def _close(self) -> None:
        if self._mirror is not None:
            with suppress(Exception):  # events that are not confirmed are sent again
                self._mirror.close()
            self._mirror = None


def parent_id(about: About, kind: type[Mirror], target: Target) -> str:
    """Return the ID of a run's parent in a mirror, or an empty string. A parent without an ID is sent first."""
    try:
        parent = read_about(about.parent) if about.parent else None
    except CseError:
        parent = None  # the run was imported without it
    if parent is None:
        return ""
    until = time.monotonic() + _PARENT_SECONDS
    while not (found := _known_id(parent, kind, target)) and time.monotonic() < until:
        sender = Sender(parent, kind)
        if sender.begin(0.2):  # otherwise another process is creating it
            try:
                sender.send()
            except GoneError:
                return ""
            finally:
                sender.end()
    return found


def _known_id(about: About, kind: type[Mirror], target: Target) -> str:
    state = State.read(about.run_id, kind.name)
    return state.id if state is not None and state.is_in(target) and not state.gone else ""


def reason(error: BaseException) -> str:
    """Return the message of an error on one line, without passwords."""
    text = error.message if isinstance(error, CseError) else str(error)
    return without_password(text.strip().partition("\n")[0] or type(error).__name__)[:200]


def warn(message: str) -> None:
    """Print a warning."""
    sys.stderr.write(f"warning: {message}\n")


def _last_change(about: About) -> float:
    with suppress(OSError):
        return (about.path / FILE).stat().st_mtime
    return about.created.timestamp()


def sync(
    kind: type[Mirror], *, unsent: bool = True, again: bool = False, rebuild: bool = False
) -> Iterator[tuple[About, Exception | None]]:
    """Send runs that a mirror lacks, oldest first, and yield each with the error that interrupted it, or None.

    A run that another process sends is skipped.

    Args:
        kind: The mirror.
        unsent: Whether to send runs that were never sent. A target on this machine always receives them.
        again: Whether to send runs that were deleted in the tracker.
        rebuild: Whether to send all runs from the start.
    """
    if rebuild:
        kind.discard()
    target = kind.connect()
    for about in _behind(kind.name, target, unsent=unsent, again=again, rebuild=rebuild):
        sender = Sender(about, kind, target)
        if not sender.begin():
            continue
        error: Exception | None = None
        try:
            state = State.read(about.run_id, kind.name)
            if rebuild or (state is not None and state.gone):
                state_file(about.run_id, kind.name).unlink(missing_ok=True)
            sender.send()
        except Exception as failed:  # the other runs are sent
            error = failed
        finally:
            sender.end()
        yield about, error


def _behind(name: str, target: Target, *, unsent: bool, again: bool, rebuild: bool) -> list[About]:
    # Runs that were pulled from a tracker are never sent.
    found = []
    for run_id in recorded_ids():
        state = State.read(run_id, name)
        if rebuild or (unsent or target.complete if state is None else _is_behind(run_id, state, target, again)):
            with suppress(CseError):  # `cse runs ls` reports damaged runs
                found.append(read_about(run_id))
    return sorted((about for about in found if "://" not in about.pulled), key=lambda about: about.created)


def waiting_elsewhere(name: str, target: Target) -> dict[str, int]:
    """Return the address of each other target that lacks events → number of runs."""
    found: Counter[str] = Counter()
    for run_id in recorded_ids():
        state = State.read(run_id, name)
        if state is not None and state.uri != target.uri and not state.gone and _lacks_events(run_id, state):
            found[state.uri] += 1
    return dict(found)


def _is_behind(run_id: str, state: State, target: Target, again: bool) -> bool:
    if state.uri != target.uri:
        return False
    if state.gone:
        return again
    return state.database != target.database or _lacks_events(run_id, state)


def _lacks_events(run_id: str, state: State) -> bool:
    if not state.ended and is_held(lock_of(run_id)) is False:
        return True
    with suppress(OSError):
        if (folder_of(run_id) / FILE).stat().st_size > state.offset:
            return next(read_events(folder_of(run_id), state.offset), None) is not None
    return False
