"""Mirrors: trackers that receive the events of runs. `CSE_MIRRORS` selects them by name.

A thread sends the events of a run while it runs, and `cse runs sync` sends the rest. Python handles signals in the main
thread, so no signal interrupts a request, and training never waits for a tracker. Importing this module imports no
tracker.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from threading import Event as Flag
from threading import Thread
from typing import ClassVar

import psutil
from pydantic import BaseModel, ValidationError

from cse_cli.core.environment import DEFAULTS, without_password
from cse_cli.runs.events import ENDS, FILE, Event, read_events
from cse_cli.runs.index import read_run, recorded_ids
from cse_cli.runs.lock import LOCK, FileLock, is_held
from cse_cli.runs.record import About, folder_of, read_about
from registry.errors import CseError, TrackingError, UnknownNameError, suggestion
from registry.paths import write_atomically

MIRRORS = {"mlflow": "cse_cli.mirrors.mlflow:MlflowMirror", "wandb": "cse_cli.mirrors.wandb:WandbMirror"}
"""Name → module and class."""
SEND_SECONDS = 2.0
"""Time between two checks for new events."""
RETRY_SECONDS = 30.0
"""Longest time between two attempts to reach a tracker."""
LAST_SECONDS = 60.0
"""Longest time that a run waits for its trackers at its end."""

# MLflow reads these settings when it is imported: no telemetry, no links on stdout, which would break `--json`, and a
# request to a server that is down fails in seconds instead of four minutes.
os.environ.update({name: value for name, value in DEFAULTS.items() if name not in os.environ})


class Mirror(ABC):
    """One run in a tracker, at the address that `connect` returned. All methods run in a thread.

    After an exception, a new mirror sends the run again from its first event. So sending an event twice must have the
    same effect as sending it once.
    """

    name: ClassVar[str]

    def __init__(self, about: About, uri: str) -> None:
        self.about, self.uri = about, uri

    @classmethod
    @abstractmethod
    def connect(cls) -> str:
        """Check that the tracker responds, and return its address without a password."""

    @abstractmethod
    def open(self, parent: str) -> str:
        """Create the run in the tracker, below the run with the ID `parent` if it is not empty, or open it.

        Return its ID in the tracker, or an empty string if a user deleted the run there.
        """

    @abstractmethod
    def send(self, events: Sequence[Event]) -> None:
        """Send events in their order. Each step of a metric occurs once, even if the run was resumed."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of `open`."""


class State(BaseModel):
    """Place of a run in a mirror: `mirrors/<name>.json` in the directory of the run.

    `size` is the size of `events.jsonl` if the tracker has the whole run, otherwise 0.
    """

    uri: str
    id: str
    size: int = 0

    @classmethod
    def read(cls, run_id: str, name: str) -> State | None:
        """Return the state of a run, or None if it was never sent or the file is damaged."""
        try:
            return cls.model_validate_json(state_file(run_id, name).read_bytes())
        except (OSError, ValidationError):
            return None


def state_file(run_id: str, name: str) -> Path:
    """Return the file with the state of a run in a mirror. One process at a time holds its lock, and sends the run."""
    return folder_of(run_id) / "mirrors" / f"{name}.json"


def configured() -> list[str]:
    """Return the names in `CSE_MIRRORS`, such as "mlflow,wandb". The default is "mlflow"."""
    names = [name.strip() for name in os.environ.get("CSE_MIRRORS", "mlflow").split(",")]
    selected = [name for name in dict.fromkeys(names) if name not in ("", "none")]
    if unknown := [name for name in selected if name not in MIRRORS]:
        message = f"CSE_MIRRORS: the mirror '{unknown[0]}' does not exist.{suggestion(unknown[0], MIRRORS)}"
        todo = f"use one or more of {', '.join(sorted(MIRRORS))}, or none"
        raise UnknownNameError(message, todo, code="mirrors.unknown_mirror")
    return selected


def load(name: str) -> type[Mirror]:
    """Return the class of a mirror."""
    try:
        return resolve_name(MIRRORS[name])  # type: ignore[no-any-return]
    except ImportError as error:
        todo = f"install its package, or remove '{name}' from CSE_MIRRORS"
        raise CseError(f"cannot import the mirror '{name}': {error}", todo, code="mirrors.not_installed") from error


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run. The most important ones are first."""
    tags = {name: getattr(about, name) for name in ("recipe", "method", "encoder", "data", "seed")}
    more = ("run_id", "experiment", "study", "search", "trial", "confirms", "summary", "paper")
    tags |= {f"cse.{name}": getattr(about, name) for name in more}
    tags |= {f"cse.{name}": "true" if getattr(about, name) else "" for name in ("test_selected", "limited")}
    tags |= {"cse.set": "; ".join(about.changes), "mlflow.note.content": about.note}
    tags |= {"mlflow.source.name": "cse", "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": about.git}
    tags["mlflow.user"] = psutil.Process().username()
    return {key: str(value) for key, value in tags.items() if value not in ("", None)} | about.tags


def send(about: About, kind: type[Mirror]) -> Generator[bool, None, None]:
    """Send a run from its first event. Each step sends the new events, and yields whether there were any."""
    mirror = kind(about, kind.connect())
    parent = State.read(about.parent, kind.name) if about.parent else None
    state = State(uri=mirror.uri, id=mirror.open(parent.id if parent is not None and parent.uri == mirror.uri else ""))
    position, has_ended, seen = 0, False, set[tuple[str, int]]()
    try:
        while state.id:
            killed = is_held(about.path / LOCK) is False
            events = []
            for event, end in read_events(about.path, position):
                if event.kind == "metrics":  # a resumed run repeats the steps after its last checkpoint
                    step, values = int(event.data["step"]), event.data["values"]
                    new = {key: float(values[key]) for key in values if (key, step) not in seen}
                    seen.update((key, step) for key in new)
                    event = replace(event, data={"step": step, "values": new})
                elif event.kind in ("started", *ENDS):
                    has_ended = event.kind != "started"
                    if event.kind == "finished" and about.is_result and (result := read_run(about.run_id).result):
                        from cse_cli.analysis.draw import draw_figures

                        if draw_figures(result) is not None:
                            events.append(Event("file", event.time, {"name": "figures"}))
                position = end
                events.append(event)
            if events:
                if killed and not has_ended:
                    events.append(Event("lost", max(event.time for event in events), {}))
                mirror.send(events)
                state.size = position if has_ended or killed else 0
                write_atomically(state_file(about.run_id, kind.name), state.model_dump_json())
            yield bool(events)
    finally:
        with suppress(Exception):
            mirror.close()


def send_missing(kind: type[Mirror]) -> Iterator[tuple[About, Exception | None]]:
    """Send the runs that a mirror does not have completely, oldest first. Skip those that another process sends.

    Yield each run that was sent, with the error that interrupted it, or None.
    """
    uri, incomplete = kind.connect(), []
    for run_id in recorded_ids():
        with suppress(CseError, OSError):  # `cse runs ls` reports damaged runs
            state, size = State.read(run_id, kind.name), (folder_of(run_id) / FILE).stat().st_size
            if state is None or (state.uri, state.size) != (uri, size):
                incomplete.append(read_about(run_id))
    for about in sorted(incomplete, key=lambda about: about.created):
        lock = FileLock(state_file(about.run_id, kind.name).with_suffix(".lock"))
        if not lock.acquire(0.0):
            continue
        try:
            with closing(send(about, kind)) as steps:
                if next(steps, False):
                    yield about, None
        except TrackingError:
            raise  # it concerns all runs
        except Exception as error:
            yield about, error
        finally:
            lock.release()


class Follower:
    """Sends a running run to the mirrors in `CSE_MIRRORS`, each from its own thread, until `close`."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self._parent, self._closing = run_id, read_about(run_id).parent, Flag()
        self._failed: dict[str, Exception] = {}
        self._threads = {name: Thread(target=self._follow, args=(name,), daemon=True) for name in configured()}
        for thread in self._threads.values():
            thread.start()

    def leave(self) -> None:
        """Send the remaining events while this process runs, without waiting. Another process sends the rest."""
        self._closing.set()

    def close(self) -> None:
        """Send the remaining events within a minute, or warn."""
        self._closing.set()
        end = time.monotonic() + LAST_SECONDS
        for name, thread in self._threads.items():
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive() or name in self._failed:
                why = reason(self._failed[name]) if name in self._failed else "no response"
                lacks = f"{name} does not have all events of run {self._run_id[:8]}: {why}"
                warn(f"{lacks}. The record is complete. To send the rest: cse runs sync")

    def _follow(self, name: str) -> None:
        wait, steps, is_last = SEND_SECONDS, None, False
        lock = FileLock(state_file(self._run_id, name).with_suffix(".lock"))
        while not lock.acquire(SEND_SECONDS):
            if self._closing.is_set():
                return  # another process sends the run
        while not is_last:
            is_last = self._closing.is_set()
            try:
                if is_last or not self._parent or State.read(self._parent, name) is not None:
                    steps = steps or send(read_about(self._run_id), load(name))
                    next(steps, None)
                self._failed.pop(name, None)
                wait = SEND_SECONDS
            except Exception as error:
                if name not in self._failed and not is_last:
                    warn(f"{name} does not respond ({reason(error)}). The run continues and sends its events later")
                self._failed[name], wait, steps = error, min(2 * wait, RETRY_SECONDS), None
            self._closing.wait(wait)
        if steps is not None:
            steps.close()
        lock.release()


def reason(error: BaseException) -> str:
    """Return the message of the first exception that led to an error, on one line and without passwords.

    MLflow and SQLAlchemy wrap exceptions of drivers and sockets, and add advice to programmers.
    """
    while not isinstance(error, CseError) and (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    text = error.message if isinstance(error, CseError) else str(error)
    return without_password(text.strip().partition("\n")[0] or type(error).__name__)[:200]


def warn(message: str) -> None:
    """Print a warning."""
    sys.stderr.write(f"warning: {message}\n")
