"""The right end state, however a run ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from cse_cli.observer import Pruned
from cse_cli.tracking.tags import REASON
from cse_cli.tracking.tracker import Tracker
from registry.errors import CseError

# Slurm and `docker stop` send SIGTERM, a closed terminal SIGHUP; MLflow by itself leaves such runs RUNNING for ever.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


_LONGEST_REASON = 300


def in_one_line(error: BaseException) -> str:
    """Return why something failed, short enough for a list."""
    said = error.message if isinstance(error, CseError) else f"{type(error).__name__}: {error}"
    first = said.strip().partition("\n")[0]
    return first if len(first) <= _LONGEST_REASON else f"{first[: _LONGEST_REASON - 1]}…"


class Terminated(SystemExit):
    """The process was asked to end by a signal; exits with 128 + its number."""


class _Asked:
    """Whether and by which signal the process was asked to end.

    An exception that a handler raises may be swallowed or turned into another by the C code it breaks into, so the
    signal is remembered as well.
    """

    number: int | None = None
    closing: bool = False

    def terminate(self, number: int, _frame: FrameType | None) -> None:
        # Whoever asked once may ask again: the run's end must still be written.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        if not self.closing:
            raise Terminated(128 + number)


_active: list[_Asked] = []


def stop_if_asked() -> None:
    """Raise again what a signal raised: Python ignores exceptions in a finaliser or a weak reference's callback.

    Long work calls this now and then; without it, a signal at the wrong moment would be lost.

    Raises:
        Terminated: The process has been asked to end.
    """
    for asked in _active:
        if asked.number is not None:
            raise Terminated(128 + asked.number)


@contextmanager
def _closing(asked: _Asked) -> Iterator[None]:
    """After the block, let a signal break into nothing: the run's end is being written."""
    try:
        yield
    finally:
        asked.closing = True


@contextmanager
def ending(tracker: Tracker) -> Iterator[None]:
    """Close the run as FINISHED, as FAILED after an exception, as KILLED after Ctrl-C or a signal.

    A broken pipe is an end from outside too, and so is the exit that rich makes of it: whoever heard what the run says
    is gone.
    """
    asked = _Asked()
    _active.append(asked)
    # Only the main thread may install handlers; a signal that is ignored (nohup) stays ignored.
    caught = [s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN] if current_thread() is main_thread() else []
    previous = {each: signal.signal(each, asked.terminate) for each in caught}
    try:
        with _closing(asked):
            yield
        tracker.finish("FINISHED")
    except Pruned:
        tracker.finish("FINISHED")
        stop_if_asked()
        raise
    except (KeyboardInterrupt, Terminated, BrokenPipeError):
        tracker.finish("KILLED")
        raise
    except BaseException as error:
        if asked.number is not None:
            tracker.finish("KILLED")
            raise Terminated(128 + asked.number) from error
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            tracker.finish("KILLED")
            raise
        tracker.tags({REASON: in_one_line(error)})
        tracker.finish("FAILED")
        raise
    finally:
        _active.remove(asked)
        for each, action in previous.items():
            signal.signal(each, action)
    if asked.number is not None:  # it came after the last step: the run is finished, the process is to end
        raise Terminated(128 + asked.number)
