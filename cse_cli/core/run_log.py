"""What a run tells, kept in its folder: its lines (`log.txt`), how far it is (`status.json`); and its end on request.

Other processes read these files, and ask the run to stop by another one. What cannot be written costs no run its life.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cse_cli.core.console import Observer, Pruned, RunInfo, Screen, file_console
from cse_cli.core.paths import runs
from cse_cli.core.run_folder import LOG, STOP
from cse_cli.core.run_status import RunStatus, forget_status
from registry.errors import CseError, RunFailedError, StopRequested
from registry.paths import make_folder

STATUS_EVERY = 1.0
"""Seconds between two writes of a run's status, and between two looks for a request to stop."""


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
    """The screen of one run that is a file in its folder; also keeps the run's status."""

    def __init__(self, run: RunInfo) -> None:
        self._folder = runs() / run.run_id
        make_folder(self._folder)
        self._file = _LogFile(self._folder / LOG)
        super().__init__(file_console(self._file))
        self._status = RunStatus.of(run)
        self._written = 0.0
        self._asked = False

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Print it; what follows the last step is told this way."""
        super().preparing(what, done, total)
        self._tell()

    def started(self, run: RunInfo) -> None:
        """Print what runs where."""
        self._is_asked()  # of an earlier part of the run, which ended before it looked
        super().started(run)
        self._tell()

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Print a line now and then."""
        super().stepped(step, loss, rate)
        self._tell(step=step, seconds_left=self.seconds_left(step))

    def scoring(self, what: str, share: float) -> None:
        """Print a line now and then."""
        super().scoring(what, share)
        self._tell()

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print dev scores."""
        super().evaluated(step, scores, best)
        metric, value = next(iter(scores.items()))
        self._tell(step=step, metric=metric, dev=value)

    def warned(self, text: str) -> None:
        """Print a warning."""
        super().warned(text)
        self._tell()

    def stop_if_asked(self) -> None:
        """End the run where that was asked for.

        Raises:
            StopRequested: It was.
        """
        if self._asked:
            run = self._status.run_id[:8]
            raise StopRequested(f"run {run} was stopped by `cse runs stop`", f"go on with: cse run --resume {run}")

    def end(self, error: BaseException | None) -> None:
        """Print how the run ended, unless `stopped` has, and take its status away."""
        match error:
            case None:
                self.console.print("finished")
            case Pruned():
                self.console.print(f"pruned: {error}", markup=False)
            case StopRequested():
                self.stopped(self._status.run_id)
            case CseError():
                self.failed(f"run {self._status.run_id[:8]}", error)
            case Exception():
                self.failed(f"run {self._status.run_id[:8]}", RunFailedError(f"{type(error).__name__}: {error}"))
        with suppress(OSError):
            forget_status(self._status.run_id)
            self._is_asked()

    def _tell(self, **changes: Any) -> None:
        """Write the status, and look for a request to stop: once a second, and after every new line."""
        self._status = replace(self._status, **changes)
        now = time.monotonic()
        if now - self._written < STATUS_EVERY and self._file.last_line == self._status.last_line:
            return
        self._written = now
        self._status = replace(self._status, last_line=self._file.last_line)
        with suppress(OSError):
            self._status.write()
        self._asked = self._asked or self._is_asked()

    def _is_asked(self) -> bool:
        """Return whether the run is asked to stop, and answer it by deleting the request."""
        try:
            (self._folder / STOP).unlink()
        except OSError:
            return False
        return True
