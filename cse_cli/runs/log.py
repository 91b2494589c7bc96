"""The printed lines of a run, kept in its directory (`log.txt`), and its end when another process requests it."""

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
    """Passes on what a run tells, and keeps it in the run's folder from its first step on. A context manager.

    It costs 8 µs a record, and 0.2 ms where the status is written, once a second: measured on two CPU cores that were
    busy otherwise, over 200,000 and 3,000 calls of `stepped`.

    Args:
        inner: Is told everything after it is kept.
        speaks: Whether this process speaks for its run; the others of one run keep and tell nothing.
    """

    def __init__(self, inner: Observer, *, speaks: bool = True) -> None:
        self._speaks = speaks
        self._told: list[Observer] = [inner] if speaks else []
        self._kept: _FolderScreen | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kept is not None:
            self._kept.end(error)

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Pass it on."""
        for each in self._told:
            each.preparing(what, done, total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Pass it on."""
        for each in self._told:
            each.downloading(what, done, total)

    def started(self, run: RunInfo) -> None:
        """Begin to keep what is told."""
        if self._speaks:
            self._kept = _FolderScreen(run)
            self._told.insert(0, self._kept)
        for each in self._told:
            each.started(run)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Pass it on, then stop where that was asked for.

        Raises:
            StopRequested: By `cse runs stop`.
        """
        for each in self._told:
            each.stepped(step, loss, rate)
        if self._kept is not None:
            self._kept.stop_if_asked()

    def scoring(self, what: str, share: float) -> None:
        """Pass it on."""
        for each in self._told:
            each.scoring(what, share)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass it on; to stop here would lose the checkpoint that follows."""
        for each in self._told:
            each.evaluated(step, scores, best)

    def collapsed(self, text: str) -> None:
        """Pass it on."""
        for each in self._told:
            each.collapsed(text)

    def warned(self, text: str) -> None:
        """Pass it on."""
        for each in self._told:
            each.warned(text)

    def stopped(self, run_id: str | None) -> None:
        """Pass it on."""
        for each in self._told:
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
