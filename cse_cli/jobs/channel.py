"""Send the events of a run to the driver process, and return the replies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from cse_cli.core.console import Downloading, Event, Observer, Preparing, Pruned, RunInfo, Scoring, Started, Stepped
from registry.errors import CseError

EVERY_SECONDS = 0.5
"""Shortest time between two frequent events."""


@dataclass(frozen=True)
class Failed:
    """Error of a job, sent instead of its result."""

    error: Exception


Send = Callable[[Event], Exception | None]
"""Send an event to the driver, and return the reply if the event needs one."""


def send_through(connection: Connection[Any, Any]) -> Send:
    """Return a function that sends events through a connection of `multiprocessing`."""

    def send(event: Event) -> Exception | None:
        try:
            connection.send(event)
            return connection.recv() if event.needs_reply else None
        except (EOFError, ConnectionError):  # a driver that was killed with unread events resets the connection
            raise BrokenPipeError("the driver has exited") from None  # the run is then STOPPED

    return send


def receive(observer: Observer, event: Event) -> Exception | None:
    """Pass an event to an observer, and return the exception that ends the run, or None."""
    try:
        observer.observe(event)
    except (CseError, Pruned) as error:
        return error
    return None


@dataclass
class RemoteObserver:
    """Observer that sends the events of a run to another process and ends the run if the reply is an exception.

    Args:
        on_start: Receives the run in this process before its first step.
    """

    send: Send
    on_start: Callable[[RunInfo], None]
    _last: float = field(default=float("-inf"), init=False)

    def observe(self, event: Event) -> None:
        """Send an event, unless it is one of many and a similar one was sent just before."""
        if isinstance(event, Started):
            self.on_start(event.run)
        if _is_frequent(event):
            now = time.monotonic()
            if now - self._last < EVERY_SECONDS:
                return
            self._last = now
        if (error := self.send(event)) is not None:
            raise error


def _is_frequent(event: Event) -> bool:
    """Return whether other events of this kind follow, so that this one may be skipped."""
    match event:
        case Preparing(_, done, total):
            return done < total
        case Downloading(_, done, size):
            return done != size
        case Scoring(_, share):
            return share < 1
    return isinstance(event, Stepped)
