"""Ray task and actor of a run: the task starts a child process on its node and passes its events to the driver.

A run is not in the process of Ray itself. Signals, crashes, threads and memory are then as on one machine, and a run
whose driver has died still records its end. Does not import torch, which only the child process needs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from cse_cli._version import __version__
from cse_cli.core.events import Event, Started
from cse_cli.core.paths import home
from cse_cli.core.threads import limit_waiting
from cse_cli.jobs.child import LEAVE_SECONDS, Child, Failed, Send
from cse_cli.runs.record import log_of
from registry.errors import CseError, MissingError

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ChildStarted(Event):
    """Start of the process of a run. Before that its task waits for a free slot."""


@dataclass(frozen=True)
class Lost:
    """Death of the process of a run. `reason` is its end, such as "was killed by SIGKILL"."""

    reason: str


class Channel:
    """Actor next to the driver that queues the events of runs and passes replies back."""

    def __init__(self) -> None:
        self._events: list[tuple[int, Event]] = []
        self._has_events = asyncio.Event()
        self._replies: dict[int, asyncio.Future[Exception | None]] = {}

    async def send(self, attempt: int, event: Event) -> Exception | None:
        """Queue an event, and return the reply if it needs one."""
        self._events.append((attempt, event))
        self._has_events.set()
        if not event.needs_reply:
            return None
        self._replies[attempt] = asyncio.get_running_loop().create_future()
        return await self._replies[attempt]

    async def wait(self) -> None:
        """Return when there are events."""
        await self._has_events.wait()

    async def take(self) -> list[tuple[int, Event]]:
        """Return and remove the queued events, each with the number of its attempt."""
        events, self._events = self._events, []
        self._has_events.clear()
        return events

    async def reply(self, attempt: int, reply: Exception | None) -> None:
        """Send the reply to an attempt that waits for it."""
        waiting = self._replies.pop(attempt)
        if not waiting.done():  # its task was canceled
            waiting.set_result(reply)


@dataclass(frozen=True)
class Setting:
    """Setting of all runs of a driver.

    Args:
        environment: Environment variables of the driver that runs need. They are not in Ray's `runtime_env`, which
            Ray's logs and dashboard show.
        threads: `OMP_NUM_THREADS` of a run. Default: torch decides.
        folder: Working directory of the driver. Paths in recipes may be relative.
        marker: File that the driver has written to the state directory.
    """

    version: str
    environment: Mapping[str, str] = field(repr=False)
    threads: int | None
    folder: Path
    marker: Path
    processes: int

    def start_child(self) -> Child:
        """Start the child process of a run on this node."""
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1
        os.environ.update(self.environment)
        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)
        limit_waiting(os.environ)
        return Child(os.environ, self.processes, self.folder if self.folder.is_dir() else home())


def check_node(setting: Setting) -> CseError | None:
    """Return why this node cannot execute runs, or None."""
    host = socket.gethostname()
    if not setting.marker.exists():
        return MissingError(
            f"node {host} cannot read the state directory of this machine, {setting.marker.parent.parent}",
            "set CSE_HOME to a directory that all nodes share, as well as recipes, data and models",
            code="ray.home_not_shared",
        )
    if __version__ != setting.version:
        return MissingError(
            f"node {host} has cse {__version__}, but this machine has {setting.version}",
            "install the same version on all nodes",
            code="ray.version_mismatch",
        )
    return None


def relay(channel: Any, attempt: int, job: bytes, setting: Setting) -> Any:
    """Run a job in a child process of this node, send its events, and return a `Result`, `Failed` or `Lost`."""
    if (error := check_node(setting)) is not None:  # this node joined after the check of all nodes
        return Failed(error)

    def send(event: Event) -> Exception | None:
        reply: Exception | None = ray.get(channel.send.remote(attempt, event))
        return reply

    child = setting.start_child()
    try:
        send(ChildStarted())
        with suppress(OSError):  # the child has died
            child.connection.send_bytes(job)  # pickled by the driver: unpickling it would import torch here
        end = _pass_events(child, send)
    except KeyboardInterrupt:  # the driver has canceled this task
        child.end(cancel=True)
        end = _pass_events(child, send, time.monotonic() + LEAVE_SECONDS)
    except BaseException:  # the driver has exited and Ray ends this process; the child records its end
        child.end(cancel=True)
        raise
    child.kill()
    return end


def _pass_events(child: Child, send: Send, until: float = float("inf")) -> Any:
    """Pass on the events of a child until it sends the end of its job, or has exited."""
    log = None
    while time.monotonic() < until:
        if not child.connection.poll(_POLL_SECONDS):
            if child.has_exited():  # its own child processes keep the pipe open
                return Lost(child.describe_exit(log))
            continue
        try:
            message = child.connection.recv()
        except (EOFError, OSError):
            child.wait()
            return Lost(child.describe_exit(log))
        if not isinstance(message, Event):
            return message
        if isinstance(message, Started):
            log = log_of(message.run.run_id)
        reply = send(message)
        if message.needs_reply:
            with suppress(OSError):  # the child has died
                child.connection.send(reply)
    return Lost(f"was killed: it did not exit within {LEAVE_SECONDS:.0f} s")
