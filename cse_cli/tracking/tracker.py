"""What training says to whoever records it.

Signals wait until a database has taken a write: an exception that breaks into MLflow leaves it locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import Literal, Protocol

Status = Literal["FINISHED", "FAILED", "KILLED"]


class Tracker(Protocol):
    """One run being recorded. No method fails because a tracking server is away."""

    run_id: str

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step; at most one value for a name and a step."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Set or replace tags."""

    def text(self, name: str, text: str) -> None:
        """Keep a text as the artifact `name`, which may contain folders."""

    def folder(self, path: Path, name: str) -> None:
        """Keep the files of a folder as artifacts below `name`."""

    def dataset(self, name: str, digest: str, context: str, source: str) -> None:
        """Record a data set the run read, e.g. context "training" or "test"."""

    def flush(self) -> None:
        """Write what is held in memory; call it before a checkpoint, so that a resumed run has no gap."""

    def finish(self, status: Status) -> None:
        """Write everything and close the run; later calls do nothing."""


class NullTracker:
    """Records nothing: for tests and for all processes but the first."""

    run_id = ""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Do nothing."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Do nothing."""

    def text(self, name: str, text: str) -> None:
        """Do nothing."""

    def folder(self, path: Path, name: str) -> None:
        """Do nothing."""

    def dataset(self, name: str, digest: str, context: str, source: str) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def finish(self, status: Status) -> None:
        """Do nothing."""


_waiting: list[Callable[[], None]] = []
_depth = 0


@contextmanager
def unbroken() -> Iterator[None]:
    """Let what is asked `afterwards` wait for the end of the block; may be nested."""
    global _depth
    if current_thread() is not main_thread():  # signals are handled in that one
        yield
        return
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0 and _waiting:
            _waiting.pop()()


def afterwards(act: Callable[[], None]) -> None:
    """Act at the end of an `unbroken` block, or at once where there is none or something waits for its end already.

    Whoever asks twice will not wait: the block may be stuck.
    """
    if _depth and not _waiting:
        _waiting.append(act)
        return
    _waiting.clear()
    act()
