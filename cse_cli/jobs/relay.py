"""What runs on the nodes of a Ray cluster: for each run a task that starts a child process, and speaks for it.

A run is not in Ray's own process: a signal, a crash, threads and memory are then as on one machine, and a run whose
driver has died still records its end. Imports no torch: only the child needs it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from cse_cli import __version__
from cse_cli.core.paths import home
from cse_cli.jobs.channel import Call, Failed
from cse_cli.jobs.child import LEAVE_SECONDS, Child
from cse_cli.runs.record import log_of
from registry.errors import CseError, MissingError

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Began:
    """A run's process has started; until then its task waited for a free slot."""


@dataclass(frozen=True)
class Lost:
    """The process of a run has died.

    Args:
        why: As a message goes on: "was ended by SIGKILL".
    """

    why: str


class Channel:
    """An actor beside the driver: keeps what runs tell until the driver asks, and passes its answers on."""

    def __init__(self) -> None:
        self._told: list[tuple[int, Call | Began]] = []
        self._news = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Exception | None]] = {}

    async def tell(self, attempt: int, message: Call | Began) -> Exception | None:
        """Tell the driver something; return its answer where the call asks for one."""
        self._told.append((attempt, message))
        self._news.set()
        if not (isinstance(message, Call) and message.asks):
            return None
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._answers[attempt] = answer
        return await answer

    async def wait_for_news(self) -> None:
        """Return when something is told that has not been taken."""
        await self._news.wait()

    async def take(self) -> list[tuple[int, Call | Began]]:
        """Return what has been told since the last time, and by which attempt."""
        told, self._told = self._told, []
        self._news.clear()
        return told

    async def answer(self, attempt: int, answer: Exception | None) -> None:
        """Answer the call of an attempt that asked."""
        waiting = self._answers.pop(attempt)
        if not waiting.done():  # its task was cancelled
            waiting.set_result(answer)


@dataclass(frozen=True)
class Setting:
    """What holds for all runs of a driver.

    Args:
        version: Of cse.
        environment: Variables of the driver's that runs need. No `runtime_env`: Ray's logs and dashboard show that.
        threads: `OMP_NUM_THREADS` of a run; None is left to torch.
        folder: Where the driver runs: paths in recipes may be relative.
        marker: A file that the driver has written into the state directory.
        processes: That share each run.
        again: Whether a process does several runs. On GPUs each gets a new one, and all memory.
    """

    version: str
    environment: Mapping[str, str] = field(repr=False)
    threads: int | None
    folder: Path
    marker: Path
    processes: int
    again: bool

    def apply(self) -> None:
        """Make the environment of this process that of a run."""
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's
        os.environ.update(self.environment)
        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)


def _refusal(setting: Setting) -> CseError | None:
    """Return why runs cannot be done on this node."""
    host = socket.gethostname()
    if not setting.marker.exists():
        return MissingError(
            f"node {host} does not see the state directory of this machine, {setting.marker.parent.parent}",
            "set CSE_HOME to a folder that all nodes share; recipes, data and models must be at shared paths, too",
        )
    if __version__ != setting.version:
        return MissingError(
            f"node {host} has cse {__version__}, and this machine {setting.version}",
            "install the same version on all nodes",
        )
    return None


def ask_node(setting: Setting) -> tuple[str, CseError | None]:
    """Return this node's name, and why runs cannot be done on it."""
    return socket.gethostname(), _refusal(setting)


_spare: list[Child] = []
"""The child of this Ray process that waits for another job, where the last one did not take it down."""


def relay(channel: Any, attempt: int, job: bytes, setting: Setting) -> Any:
    """Do a job in a child process of this node, and tell the driver through the channel how it goes.

    Returns:
        A `Result`, `Failed` or `Lost`.
    """
    if (error := _refusal(setting)) is not None:  # a node that joined later
        return Failed(error)
    spare = _spare.pop() if _spare else None
    child = spare if spare is not None and not spare.has_died() else _start_child(setting)

    def tell(message: Call | Began) -> Exception | None:
        answer: Exception | None = ray.get(channel.tell.remote(attempt, message))
        return answer

    try:
        tell(Began())
        with suppress(OSError):  # it has died; its end is read next
            child.connection.send_bytes(job)  # as it was pickled: to read it here would import torch
        end = _pass_on(child, tell)
        if setting.again and not isinstance(end, Lost):
            _spare.append(child)
            return end
    except KeyboardInterrupt:  # the driver has cancelled this task
        child.end(at_once=True)
        end = _pass_on(child, tell, time.monotonic() + LEAVE_SECONDS)
    except BaseException:  # the driver is gone and Ray ends this process; the child records its end by itself
        child.end(at_once=True)
        raise
    child.kill()
    return end


def _start_child(setting: Setting) -> Child:
    setting.apply()
    return Child(os.environ, setting.processes, setting.folder if setting.folder.is_dir() else home())


def _pass_on(child: Child, tell: Callable[[Call], Exception | None], until: float = float("inf")) -> Any:
    """Pass on what a child tells until it gives back what became of its job, or has ended."""
    log = None
    while time.monotonic() < until:
        if not child.connection.poll(_POLL_SECONDS):
            if child.has_died():  # and processes of its own keep the pipe open
                return Lost(child.how_it_ended(log))
            continue
        try:
            message = child.connection.recv()
        except (EOFError, OSError):
            child.wait()
            return Lost(child.how_it_ended(log))
        if not isinstance(message, Call):
            return message
        if message.method == "started":
            log = log_of(message.args[0].run_id)
        answer = tell(message)
        if message.asks:
            with suppress(OSError):  # it has died; its end is read next
                child.connection.send(answer)
    return Lost("did not end when it was asked to, and was killed")
