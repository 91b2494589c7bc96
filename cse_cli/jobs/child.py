"""Process that executes one run (`cse_cli.jobs.worker`), as seen by the process that started it. Imports no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_cli.runs.record import log_of

LEAVE_SECONDS = 15.0
"""Time for runs to record their end when they are stopped."""
_LOG_LINES = 12


class Child:
    """Process of one run, which `processes` may share. Its output goes to the log of the run.

    It is a command with its whole `environment`, so that it does not inherit the state of this process. It leads a
    session, so that Ctrl-C in the terminal does not reach it.
    """

    def __init__(
        self, run_id: str, device: str, environment: Mapping[str, str], processes: int = 1, folder: Path | None = None
    ) -> None:
        self._log = log_of(run_id)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # -P: do not import from the current directory.
                [sys.executable, "-P", "-m", "cse_cli.jobs.worker", run_id, device, str(processes), str(os.getpid())],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """Return the exit code of the process, or None while it runs. An empty log is then deleted."""
        code = self._process.poll()
        if code is not None and self._log.exists() and self._log.stat().st_size == 0:
            self._log.unlink()
        return code

    def stop(self) -> None:
        """Request the end of the run, which records it as STOPPED."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def describe_exit(self) -> str:
        """Return how the process ended, for use after "its process": the signal, or the last lines of its output."""
        return describe_exit(self._process.returncode, [self._log])


def describe_exit(code: int, logs: Sequence[Path]) -> str:
    """Return the signal that killed a process, with a likely reason, or the last lines of the first log that exists."""
    if code < 0:
        reason = " (possibly out of memory)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{reason}"
    log = next((path for path in logs if path.exists()), None)
    lines = [] if log is None else log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    return "\n  ".join([f"exited with code {code}", *lines[-_LOG_LINES:]])
