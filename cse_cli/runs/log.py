"""The printed lines of a run (`log.txt`), and its end if another process requests it."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from cse_cli.core.console import Observer, Pruned, RunInfo, Screen, file_console
from cse_cli.core.paths import runs
from cse_cli.runs.record import LOG, STOP
from registry.errors import CseError, RunFailedError, StopRequested
from registry.paths import make_folder

LOOK_EVERY = 1.0
"""Seconds between two checks for a request to stop."""


class RunLog:
    """Observer that writes the lines of a run to `log.txt` from its first step on, and passes everything on.

    Between steps it ends the run if another process requested that. A context manager.

    Args:
        inner: Observer that receives everything after it is written.
        speaks: Whether this process reports for its run. The other processes of the run write and pass on nothing.
    """

    def __init__(self, inner: Observer, *, speaks: bool = True) -> None:
        self._speaks = speaks
        self._observers: list[Observer] = [inner] if speaks else []
        self._kept: _FolderScreen | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kept is not None:
            self._kept.end(error)

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.preparing(what, done, total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.downloading(what, done, total)

    def started(self, run: RunInfo) -> None:
        """Open the log."""
        if self._speaks:
            self._kept = _FolderScreen(run)
            self._observers.insert(0, self._kept)
        for each in self._observers:
            each.started(run)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Pass the call on, then end the run if that was requested.

        Raises:
            StopRequested: If `cse runs stop` requested it.
        """
        for each in self._observers:
            each.stepped(step, loss, rate)
        if self._kept is not None:
            self._kept.stop_if_asked()

    def scoring(self, what: str, share: float) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.scoring(what, share)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass the call on. The run does not end here, because a checkpoint follows."""
        for each in self._observers:
            each.evaluated(step, scores, best)

    def collapsed(self, text: str) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.collapsed(text)

    def warned(self, text: str) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.warned(text)

    def stopped(self, run_id: str | None) -> None:
        """Pass the call on."""
        for each in self._observers:
            each.stopped(run_id)


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


class _FolderScreen(Screen):
    """The screen of one run that is a file in its directory. It also notices a request to stop."""

    def __init__(self, run: RunInfo) -> None:
        self._folder = runs() / run.run_id
        make_folder(self._folder)
        self._run_id = run.run_id
        super().__init__(file_console(_LogFile(self._folder / LOG)))
        self._looked = 0.0

    def stop_if_asked(self) -> None:
        """End the run if that was requested, which is checked once a second.

        Raises:
            StopRequested: If it was.
        """
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            if (self._folder / STOP).exists():
                run = self._run_id[:8]
                raise StopRequested(f"run {run} was stopped by `cse runs stop`", f"resume it: cse run --resume {run}")

    def started(self, run: RunInfo) -> None:
        """Print what runs where. A request to stop from before is void."""
        (self._folder / STOP).unlink(missing_ok=True)
        super().started(run)

    def end(self, error: BaseException | None) -> None:
        """Print how the run ended, unless `stopped` has."""
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
                self.failed(f"run {self._run_id[:8]}", RunFailedError(f"{type(error).__name__}: {error}"))
