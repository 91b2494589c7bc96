"""Child process that runs jobs, as seen by its parent. `cse_cli.jobs.worker` is its program. Does not import torch."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cse_cli.core.paths import home
from registry.paths import make_folder

LEAVE_SECONDS = 15.0
"""Time for runs to record their end when they are stopped."""
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
        code = self._process.returncode
        if code < 0:
            return describe_signal(-code)
        written = next((path for path in (log, self._log) if path is not None and path.exists()), None)
        lines = [] if written is None else written.read_text("utf-8", "replace").strip().split("\n")[-_LOG_LINES:]
        return "\n  ".join([f"exited with code {code}", *lines])


def describe_signal(number: int) -> str:
    """Return that a process was killed by a signal, with a likely reason."""
    reason = " (possibly out of memory)" if number == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(number).name}{reason}"
