"""One of several processes of a run: its rank, and how it ends, soon after a signal whatever it waits for.

Python acts on a signal between two of its own instructions, and a process that waits in a collective gets to none, so a
thread watches instead. On Ctrl-C or SIGTERM rank 0 stops and records it as a single run does; the others go on until it
has, or else it would wait for them.

Imports nothing heavy: signals must be blocked before a library starts threads, which would not be.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from time import monotonic, sleep
from types import FrameType
from typing import NoReturn

import psutil

from registry.errors import CseError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class ProcessRank:
    """One of several processes.

    Args:
        rank: Its number.
        world: How many there are, on all machines.
        local: Its number among those of its machine: which of its devices it takes.
    """

    rank: int = 0
    world: int = 1
    local: int = 0


def place() -> ProcessRank | None:
    """Return the rank that torchrun's environment gives this process; None where it gives none.

    Raises:
        CseError: The environment is inconsistent.
    """
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if len(given) < len(VARIABLES):  # some schedulers set RANK alone
        return None
    try:
        found = ProcessRank(int(given["RANK"]), int(given["WORLD_SIZE"]), int(given["LOCAL_RANK"]))
    except ValueError:
        found = ProcessRank(-1)
    if not (0 <= found.rank < found.world and found.local >= 0):
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise CseError(f"the environment says {shown}", "start with torchrun, or unset these for a run of one process")
    return found


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENT_SECONDS = 25.0
"""Longest time to leave after Ctrl-C: all processes are well, and a step may take long."""
LEAVE_SECONDS = 7.0
"""Longest time to leave after another signal: it may be that a process is gone that others wait for."""
_POLL_SECONDS = 0.2
_LIFE_SECONDS = 1.0

_first: list[int] = []
"""Process id of rank 0, where it is one of this machine."""


def follow(pid: int) -> None:
    """Leave as soon as rank 0, the process `pid` of this machine, has left after a signal."""
    _first[:] = [pid]


def listen(rank: int) -> None:
    """Handle signals from now on as one of several processes."""
    if rank == 0:
        _stop_like_a_single_run()
    else:
        _go_on_until_rank_0_stops()


def ignore() -> None:
    """Ignore signals from now on: the end of a run is being recorded."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def among_others(work: Callable[[], int]) -> NoReturn:
    """Do the work of one of several processes, then end this one at once, with the exit code of `work`.

    Tearing down what it shares with processes that are gone may wait for ever, or abort where their connections break.
    """
    try:
        code = work()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def end_with_parent(parent: int | None = None) -> None:
    """End this process when the one that started it has ended, even if that one was killed.

    Args:
        parent: Id of the process that started it, where known: it may have ended already.
    """
    started_by = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == started_by:
            sleep(_LIFE_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(PATIENT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)  # it hangs, and nobody else would end it

    Thread(target=watch, daemon=True).start()


def _stop_like_a_single_run() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        ignore()  # of a second signal: the run's end must still be written
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while (number := os.read(reader, 1)[0]) not in SIGNALS:
            pass
        sleep(_seconds(number))
        if signal.getsignal(number) is not signal.SIG_IGN:  # its handler, which would ignore more, has never run
            os._exit(128 + number)

    Thread(target=watch, daemon=True).start()


def _go_on_until_rank_0_stops() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def watch() -> None:
        number = signal.sigwait(SIGNALS)
        last = monotonic() + _seconds(number)
        while monotonic() < last and not (_first and _is_gone(_first[0])):
            sleep(_POLL_SECONDS)
        os._exit(128 + number)

    Thread(target=watch, daemon=True).start()


def _is_gone(pid: int) -> bool:
    return not is_alive(pid, None)


def _seconds(number: int) -> float:
    return PATIENT_SECONDS if number == signal.SIGINT else LEAVE_SECONDS


_CLOCK_SECONDS = 2.0


def is_alive(pid: int, started: str | None) -> bool:
    """Tell whether a process of this machine is alive; `started` is its start time in seconds, None is not checked."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # A process id is used again: only the same start time is the same process.
        return started is None or abs(process.create_time() - float(started)) < _CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
