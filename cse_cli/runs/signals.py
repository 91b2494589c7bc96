"""How a run ends: finished, failed after an exception, stopped after a signal or `cse runs stop`.

Slurm and `docker stop` send SIGTERM, and a closed terminal sends SIGHUP.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from cse_cli.core.console import Pruned
from cse_cli.runs.record import RunRecord
from registry.errors import CseError, StopRequested

_TERMINATING = (signal.SIGTERM, signal.SIGHUP)
_LONGEST_REASON = 300
Handler = Callable[[int, FrameType | None], Any]


class Terminated(SystemExit):
    """The process was asked to end by a signal; exits with 128 + its number."""


@contextmanager
def ending(record: RunRecord) -> Iterator[None]:
    """Record how the run ends: "stopped" after Ctrl-C, a signal or `cse runs stop`, "failed" after an exception.

    A broken pipe counts as stopped too, and so does the exit that rich makes of it.
    """
    request = _StopRequest()
    _active.append(request)
    previous = _install(request.handlers())
    try:
        try:
            yield
        finally:
            request.closing = True
        record.end("finished")
    except Pruned as error:
        record.end("pruned", str(error))
        stop_if_asked()
        raise
    except (KeyboardInterrupt, Terminated, BrokenPipeError, StopRequested):
        record.end("stopped")
        raise
    except BaseException as error:
        if request.number is not None:
            record.end("stopped")
            raise request.error() from error
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            record.end("stopped")
            raise
        record.end("failed", in_one_line(error))
        raise
    finally:
        _active.remove(request)
        _restore(previous)
    if request.number is not None:  # it came after the last step: the run is finished, the process is to end
        raise request.error()


def stop_if_asked() -> None:
    """Raise again what a signal raised: Python ignores exceptions in a finaliser or a weak reference's callback.

    Long work calls this now and then; without it, a signal at the wrong moment would be lost.

    Raises:
        Terminated: The process has been asked to end.
        KeyboardInterrupt: By Ctrl-C.
    """
    for request in _active:
        if request.number is not None:
            raise request.error()


@contextmanager
def defer_signals() -> Iterator[list[int]]:
    """Let a signal take effect at the end of the block, a second one at once.

    Yields:
        The number of the signal that waits, if any.
    """
    waiting: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if waiting:  # whoever asks twice will not wait: the block may be stuck
            waiting.clear()
            _restore(previous)
            signal.raise_signal(number)
        else:
            waiting.append(number)

    previous: dict[signal.Signals, Any] = {}
    previous |= _install(dict.fromkeys((*_TERMINATING, signal.SIGINT), remember))
    try:
        yield waiting
    finally:
        _restore(previous)
        if waiting and signal.getsignal(waiting[0]) == signal.SIG_DFL:
            raise Terminated(128 + waiting[0])  # the default action would leave nothing time to clean up
        if waiting:
            signal.raise_signal(waiting[0])


def in_one_line(error: BaseException) -> str:
    """Return why something failed, short enough for a list."""
    message = error.message if isinstance(error, CseError) else f"{type(error).__name__}: {error}"
    first = message.strip().partition("\n")[0]
    return first if len(first) <= _LONGEST_REASON else f"{first[: _LONGEST_REASON - 1]}…"


class _StopRequest:
    """Which signal asked the process to end, if one has, during one `ending` block.

    It is remembered because the exception that a handler raises may be swallowed, or turned into another one by the C
    code it breaks into.
    """

    number: int | None = None
    closing: bool = False
    """Whether the run's end is being written, which a signal does not interrupt."""

    def error(self) -> BaseException:
        """Return what the signal raises."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated(128 + (self.number or 0))

    def handlers(self) -> dict[signal.Signals, Handler]:
        """Return the handlers for the block; that of Ctrl-C does in the end what the present one does."""
        handlers: dict[signal.Signals, Handler] = dict.fromkeys(_TERMINATING, self._terminate)
        if current_thread() is main_thread() and callable(before := signal.getsignal(signal.SIGINT)):
            handlers[signal.SIGINT] = self._interrupt_with(before)
        return handlers

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        for each in _TERMINATING:  # often sent twice; the run's end must still be written
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        if not self.closing:
            raise self.error()

    def _interrupt_with(self, before: Handler) -> Handler:
        def interrupt(number: int, frame: FrameType | None) -> None:
            again, self.number = self.number is not None, number
            if again or not self.closing:  # the second Ctrl-C may also break into the end
                before(number, frame)

        return interrupt


_active: list[_StopRequest] = []


def _install(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Any]:
    """Install handlers and return those there were. What is ignored (nohup) stays ignored."""
    if current_thread() is not main_thread():  # which alone may install handlers
        return {}
    caught = [each for each in handlers if signal.getsignal(each) != signal.SIG_IGN]
    return {each: signal.signal(each, handlers[each]) for each in caught}


def _restore(previous: Mapping[signal.Signals, Any]) -> None:
    for each, action in previous.items():
        # Ctrl-C is ignored where its own handler, which `_interrupt_with` has called, said so: the process is leaving.
        if each != signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, action)
