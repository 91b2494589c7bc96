"""One of several processes of a run: its rank, and its end after a signal.

Python handles a signal between two instructions. A process that waits in a collective operation does not
reach the next one, so a thread watches for signals. After Ctrl-C or SIGTERM, rank 0 stops and records the stop. The
other processes continue until rank 0 has exited, because it would wait for them.

This module imports no heavy library: signals must be blocked before a library starts threads.
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
    """Rank of a process over all machines, and on its own machine, which decides its device."""

    rank: int = 0
    world: int = 1
    local: int = 0


def torchrun_rank() -> ProcessRank | None:
    """Return the rank of this process from torchrun's environment variables, or None without them."""
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if len(given) < len(VARIABLES):  # some schedulers set only RANK
        return None
    try:
        found = ProcessRank(int(given["RANK"]), int(given["WORLD_SIZE"]), int(given["LOCAL_RANK"]))
    except ValueError:
        found = ProcessRank(-1)
    if not (0 <= found.rank < found.world and found.local >= 0):
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise CseError(
            f"inconsistent environment variables: {shown}",
            "start with torchrun, or unset them to use one process",
            code="core.torchrun_environment",
        )
    return found


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENT_SECONDS = 25.0
"""Maximum time to exit after Ctrl-C. A step may take long."""
LEAVE_SECONDS = 7.0
"""Maximum time to exit after another signal. Another process may have crashed."""
_POLL_SECONDS = 0.2
_LIFE_SECONDS = 1.0

_first: list[int] = []
"""Process ID of rank 0, if it runs on this machine."""


def exit_with_rank0(pid: int) -> None:
    """Exit after a signal as soon as rank 0, which is process `pid` of this machine, has exited."""
    _first[:] = [pid]


def install_signal_handlers(rank: int) -> None:
    """Install the signal handlers of one of several processes."""
    if rank == 0:
        _stop_like_a_single_run()
    else:
        _go_on_until_rank_0_stops()


def ignore_signals() -> None:
    """Ignore further signals, because the end of the run is being recorded."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run_rank_and_exit(work: Callable[[], int]) -> NoReturn:
    """Run `work` as one of several processes, then exit immediately with its exit code.

    A normal exit can wait forever for a process that has crashed, or abort when its connection breaks.
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
    """End this process when its parent (default: the current one) has ended or was killed, even before this call."""
    started_by = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == started_by:
            sleep(_LIFE_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(PATIENT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)  # it hangs

    Thread(target=watch, daemon=True).start()


def _stop_like_a_single_run() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        ignore_signals()  # the end of the run must still be recorded
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while (number := os.read(reader, 1)[0]) not in SIGNALS:
            pass
        sleep(_seconds(number))
        if signal.getsignal(number) is not signal.SIG_IGN:  # the handler has never run
            os._exit(128 + number)

    Thread(target=watch, daemon=True).start()


def _go_on_until_rank_0_stops() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def watch() -> None:
        number = signal.sigwait(SIGNALS)
        last = monotonic() + _seconds(number)
        while monotonic() < last and (not _first or is_alive(_first[0], None)):
            sleep(_POLL_SECONDS)
        os._exit(128 + number)

    Thread(target=watch, daemon=True).start()


def _seconds(number: int) -> float:
    return PATIENT_SECONDS if number == signal.SIGINT else LEAVE_SECONDS


_CLOCK_SECONDS = 2.0


def is_alive(pid: int, started: str | None) -> bool:
    """Return whether a process of this machine is running.

    `started` is its start time in seconds, because process IDs are reused. None is not checked.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - float(started)) < _CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
