"""The right end state, however a run ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from cse_cli.core.console import Pruned
from cse_cli.tracking.location import REASON
from cse_cli.tracking.tracker import Tracker, afterwards
from registry.errors import CseError

# Slurm and `docker stop` send SIGTERM, a closed terminal SIGHUP; MLflow by itself leaves such runs RUNNING for ever.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], Any]

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

    def error(self) -> BaseException:
        """Return what the signal raises."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated(128 + (self.number or 0))

    def terminate(self, number: int, _frame: FrameType | None) -> None:
        # Whoever asked once may ask again: the run's end must still be written.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        if not self.closing:
            afterwards(self._raise)

    def interrupting(self, before: Handler) -> Handler:
        """Return a handler of Ctrl-C that does what `before` does; a second Ctrl-C may also break into the end."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            again, self.number = self.number is not None, number
            if again or not self.closing:
                afterwards(lambda: before(number, frame))

        return interrupt

    def _raise(self) -> None:
        raise self.error()


_active: list[_Asked] = []


def stop_if_asked() -> None:
    """Raise again what a signal raised: Python ignores exceptions in a finaliser or a weak reference's callback.

    Long work calls this now and then; without it, a signal at the wrong moment would be lost.

    Raises:
        Terminated: The process has been asked to end.
        KeyboardInterrupt: By Ctrl-C.
    """
    for asked in _active:
        if asked.number is not None:
            raise asked.error()


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
    previous = _installed(asked)
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
            raise asked.error() from error
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            tracker.finish("KILLED")
            raise
        tracker.tags({REASON: in_one_line(error)})
        tracker.finish("FAILED")
        raise
    finally:
        _active.remove(asked)
        _put_back(previous)
    if asked.number is not None:  # it came after the last step: the run is finished, the process is to end
        raise asked.error()


def _installed(asked: _Asked) -> dict[signal.Signals, Any]:
    """Have signals handled; return the handlers there were. What is ignored (nohup) stays ignored."""
    if current_thread() is not main_thread():  # which alone may install handlers
        return {}
    caught = [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
    previous = {each: signal.signal(each, asked.terminate) for each in caught}
    before = signal.getsignal(signal.SIGINT)
    if callable(before):
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, asked.interrupting(before))
    return previous


def _put_back(previous: dict[signal.Signals, Any]) -> None:
    for each, action in previous.items():
        # Ctrl-C is ignored where its own handler, which `interrupting` has called, said so: the process is leaving.
        if each != signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, action)
