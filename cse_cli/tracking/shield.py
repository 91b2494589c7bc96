"""Signals wait until a database has taken a write: an exception that breaks into MLflow leaves it locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

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
