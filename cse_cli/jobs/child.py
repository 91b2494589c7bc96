"""A child process that runs jobs, as its parent sees it; `cse_cli.jobs.worker` is what it does. Imports no torch."""

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
"""How long runs may take to record their end when they are stopped."""
_LOG_LINES = 12


class Child:
    """A process that takes one job after the other through a pipe.

    It is a command and not a fork, so that it begins without the state of this process, and the leader of a session, so
    that Ctrl-C at the terminal does not reach it.

    Args:
        environment: All of its environment.
        processes: That share each run; more than one are children of it.
        folder: Where it runs; None is where this process does.
    """

    def __init__(self, environment: Mapping[str, str], processes: int = 1, folder: Path | None = None) -> None:
        self.connection: Connection[Any, Any]
        self.connection, theirs = connection.Pipe()
        logs = home() / "logs"
        make_folder(logs)
        with theirs, (logs / f"worker-{socket.gethostname()}-{os.getpid()}.log").open("ab") as log:
            self._log = Path(log.name)
            told = (theirs.fileno(), os.getpid(), processes)
            self._process = subprocess.Popen(
                # -P: nothing is imported from the folder that the command was started in.
                [sys.executable, "-P", "-m", "cse_cli.jobs.worker", *map(str, told)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def has_died(self) -> bool:
        """Return whether the process is gone, and nothing is left to hear of it."""
        return self._process.poll() is not None and not self.connection.poll()

    def end(self, *, at_once: bool) -> None:
        """Ask it to end: at once, its run recorded as stopped, or as it has no job."""
        if at_once:
            self._process.terminate()
        with suppress(OSError):
            self.connection.send(None)

    def wait(self) -> None:
        """Wait for its end, which has begun."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it now, whatever it does, and leave no log of nothing."""
        self._process.kill()
        self._process.wait()
        self.connection.close()
        with suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    def how_it_ended(self, log: Path | None) -> str:
        """Return how the process ended, as a message goes on: by which signal, or with the last lines it wrote."""
        code = self._process.returncode
        if code < 0:
            maybe = "; the kernel does so where memory runs out" if code == -signal.SIGKILL else ""
            return f"was ended by {signal.Signals(-code).name}{maybe}"
        written = next((path for path in (log, self._log) if path is not None and path.exists()), None)
        lines = [] if written is None else written.read_text("utf-8", "replace").strip().split("\n")[-_LOG_LINES:]
        return "\n  ".join([f"ended with code {code}", *lines])
