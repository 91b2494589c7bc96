"""Log of a run (`log.txt`), and its end if another process requests it."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from cse_cli.core.console import Screen, file_console
from cse_cli.core.events import Event, Observer, Pruned, RunInfo, Started, Stepped
from cse_cli.core.paths import runs
from cse_cli.runs.record import LOG, STOP
from registry.errors import CseError, RunFailedError, StopRequested
from registry.paths import make_folder

LOOK_EVERY = 1.0
"""Seconds between two checks for a request to stop."""


class RunLog:
    """Observer that writes the lines of a run to `log.txt` from its first step on, and forwards all events.

    Between steps it ends the run if another process requested that. A context manager.

    Args:
        inner: Observer that receives each event after the log.
        speaks: Whether this process reports for its run. Other processes of the run write and forward nothing.
    """

    def __init__(self, inner: Observer, *, speaks: bool = True) -> None:
        self._speaks = speaks
        self._observers: list[Observer] = [inner] if speaks else []
        self._screen: _LogScreen | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._screen is not None:
            self._screen.end(error)

    def observe(self, event: Event) -> None:
        """Forward an event. After a step, end the run if that was requested."""
        if isinstance(event, Started) and self._speaks:
            self._screen = _LogScreen(event.run)
            self._observers.insert(0, self._screen)
        for each in self._observers:
            each.observe(event)
        if isinstance(event, Stepped) and self._screen is not None:
            self._screen.check_request()


class _LogFile(io.TextIOBase):
    """Appends lines to a file, each with its time."""

    def __init__(self, path: Path) -> None:
        self.last_line = ""
        self._path = path

    def write(self, text: str) -> int:
        """Append whole lines."""
        if lines := text.rstrip().splitlines():
            self.last_line = lines[-1].strip()
            now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
            with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{now}  {line}\n" for line in lines))
        return len(text)


class _LogScreen(Screen):
    """Screen of one run that writes to its log. It also checks for a request to stop."""

    def __init__(self, run: RunInfo) -> None:
        self._folder = runs() / run.run_id
        make_folder(self._folder)
        self._run_id = run.run_id
        super().__init__(file_console(_LogFile(self._folder / LOG)))
        self._looked = 0.0

    def check_request(self) -> None:
        """Check once per second for a request to stop."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            if (self._folder / STOP).exists():
                run = self._run_id[:8]
                raise StopRequested(
                    f"run {run} was stopped by `cse runs stop`",
                    f"resume it: cse run --resume {run}",
                    code="runs.stopped",
                )

    def started(self, run: RunInfo) -> None:
        """Print the header of the run, and delete an earlier request to stop."""
        (self._folder / STOP).unlink(missing_ok=True)
        super().started(run)

    def end(self, error: BaseException | None) -> None:
        """Print how the run ended, except after Ctrl-C, which `stopped` prints."""
        match error:
            case None:
                self.console.print("finished")
            case Pruned():
                self.console.print(f"pruned: {error}", markup=False)
            case StopRequested():
                self.stopped(self._run_id)
            case CseError():
                self.failed(f"run {self._run_id[:8]}", error)
            case Exception():
                failure = RunFailedError(f"{type(error).__name__}: {error}", code="runs.failed")
                self.failed(f"run {self._run_id[:8]}", failure)
