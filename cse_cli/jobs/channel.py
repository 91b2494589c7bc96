"""The channel between a run and the observer of it: what a run tells in one process is heard in another, and answered.

The run's process has a `RemoteObserver`, the driver calls `hear`. Calls that may end the run wait for the answer: an
exception that the observer raised is raised again in the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from cse_cli.core.console import Observer, Pruned, RunInfo
from registry.errors import CseError

EVERY_SECONDS = 0.5
"""Between two reports of progress: a driver with many runs draws no more."""


@dataclass(frozen=True)
class Call:
    """One call of an observer's method.

    Args:
        method: Its name.
        args: What it is called with.
        asks: Whether the run waits for an answer: go on (None), or the exception to end with.
    """

    method: str
    args: tuple[Any, ...]
    asks: bool


@dataclass(frozen=True)
class Failed:
    """Why a job has no result, sent in place of one."""

    error: Exception


Tell = Callable[[Call], Exception | None]
"""Sends a call to the driver; returns its answer where the call asks for one."""


def tell_through(connection: Connection[Any, Any]) -> Tell:
    """Return how calls are sent through a connection of `multiprocessing`."""

    def tell(call: Call) -> Exception | None:
        try:
            connection.send(call)
            return connection.recv() if call.asks else None
        except (EOFError, ConnectionError):  # a driver that was killed with unread calls resets the connection
            raise BrokenPipeError("the driver has exited") from None  # by which the run is STOPPED

    return tell


def hear(observer: Observer, call: Call) -> Exception | None:
    """Call an observer, and return the answer: None, or why the run is to end."""
    try:
        getattr(observer, call.method)(*call.args)
    except (CseError, Pruned) as error:
        return error
    return None


@dataclass
class RemoteObserver:
    """An observer whose calls are heard in another process.

    Args:
        tell: Sends a call.
        begun: Is told here, too, which run it is.
    """

    tell: Tell
    begun: Callable[[RunInfo], None]
    _last: float = field(default=float("-inf"), init=False)

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Pass it on, now and then."""
        self._now_and_then("preparing", what, done, total, last=done >= total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Pass it on, now and then."""
        self._now_and_then("downloading", what, done, total, last=done == total)

    def started(self, run: RunInfo) -> None:
        """Pass it on before the first step: the driver knows which run to resume if this process dies."""
        self.begun(run)
        self._ask("started", run)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Pass it on, now and then."""
        self._now_and_then("stepped", step, loss, rate)

    def scoring(self, what: str, share: float) -> None:
        """Pass it on, now and then."""
        self._now_and_then("scoring", what, share, last=share >= 1)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass it on, and end the run where the driver says so."""
        self._ask("evaluated", step, dict(scores), best)

    def collapsed(self, text: str) -> None:
        """Pass it on, and end the run where the driver says so."""
        self._ask("collapsed", text)

    def warned(self, text: str) -> None:
        """Pass it on."""
        self.tell(Call("warned", (text,), asks=False))

    def stopped(self, run_id: str | None) -> None:
        """Pass it on."""
        self.tell(Call("stopped", (run_id,), asks=False))

    def _ask(self, method: str, *args: Any) -> None:
        if (error := self.tell(Call(method, args, asks=True))) is not None:
            raise error

    def _now_and_then(self, method: str, *args: Any, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._last >= EVERY_SECONDS:
            self._last = now
            self.tell(Call(method, args, asks=False))
