"""Child process that runs jobs, as seen by its parent, and the events that it sends. Does not import torch.

`cse_cli.jobs.worker` is its program.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cse_cli.core.events import Downloading, Event, Observer, Preparing, Pruned, RunInfo, Scoring, Started, Stepped
from cse_cli.core.paths import home
from registry.errors import CseError
from registry.paths import make_folder

LEAVE_SECONDS = 15.0
"""Time for runs to record their end when they are stopped."""
EVERY_SECONDS = 0.5
"""Shortest time between two frequent events."""
_LOG_LINES = 12


class Child:
    """Process that receives one job after the other through a pipe.

    It is a command, so that it does not inherit the state of this process. It leads a session, so that Ctrl-C in the
    terminal does not reach it.

    Args:
        environment: Complete environment of the process.
        processes: Number of processes that share each run.
        folder: Working directory. Default: that of this process.
    """

    def __init__(self, environment: Mapping[str, str], processes: int = 1, folder: Path | None = None) -> None:
        self.connection: Connection[Any, Any]
        self.connection, theirs = connection.Pipe()
        logs = home() / "logs"
        make_folder(logs)
        with theirs, (logs / f"worker-{socket.gethostname()}-{os.getpid()}.log").open("ab") as log:
            self._log = Path(log.name)
            arguments = (theirs.fileno(), os.getpid(), processes)
            self._process = subprocess.Popen(
                # -P: do not import from the current directory.
                [sys.executable, "-P", "-m", "cse_cli.jobs.worker", *map(str, arguments)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def has_exited(self) -> bool:
        """Return whether the process has exited and all its messages have been read."""
        return self._process.poll() is not None and not self.connection.poll()

    def end(self, *, cancel: bool) -> None:
        """Request the end of the process. With `cancel` its run stops and is recorded as STOPPED."""
        if cancel:
            self._process.terminate()
        with suppress(OSError):
            self.connection.send(None)

    def wait(self) -> None:
        """Wait until the process has exited, or kill it after `LEAVE_SECONDS`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the process, and delete its log if the log is empty."""
        self._process.kill()
        self._process.wait()
        self.connection.close()
        with suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    def describe_exit(self, log: Path | None) -> str:
        """Return how the process ended, for use after "its process": the signal, or the last lines of its log."""
        return describe_exit(self._process.returncode, [self._log] if log is None else [log, self._log])


def describe_exit(code: int, logs: Sequence[Path]) -> str:
    """Return the signal that killed a process, with a likely reason, or the last lines of the first log that exists."""
    if code < 0:
        reason = " (possibly out of memory)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{reason}"
    log = next((path for path in logs if path.exists()), None)
    lines = [] if log is None else log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    return "\n  ".join([f"exited with code {code}", *lines[-_LOG_LINES:]])


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

    `on_start` receives the run in this process before its first step.
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
