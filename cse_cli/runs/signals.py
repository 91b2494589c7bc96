"""End of a run: finished, failed after an exception, stopped after a signal or `cse runs stop`.

Slurm and `docker stop` send SIGTERM, and a closed terminal sends SIGHUP.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from cse_cli.runs.events import Pruned
from cse_cli.runs.record import RunRecord
from registry.errors import CseError, RunFailedError, StopRequested

_TERMINATING = (signal.SIGTERM, signal.SIGHUP)
_LONGEST_REASON = 300
Handler = Callable[[int, FrameType | None], Any]


class Terminated(SystemExit):
    """A signal that stops the process. The exit code is 128 + its number."""


@contextmanager
def ending(record: RunRecord) -> Iterator[None]:
    """Record how the run ends: "stopped" after Ctrl-C, a signal or `cse runs stop`, "failed" after an exception.

    A broken pipe, which rich converts to an exit, counts as stopped too.
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
        known = error
        if not isinstance(known, CseError):
            known = RunFailedError(f"{type(error).__name__}: {error}", code="runs.failed")
        record.end(
            "failed", in_one_line(error), type=type(known).__name__, message=known.message, action=known.next_action,
            code=known.code,
        )  # fmt: skip
        raise
    finally:
        _active.remove(request)
        _restore(previous)
    if request.number is not None:  # it came after the last step: the run is finished, but the process must exit
        raise request.error()


def stop_if_asked() -> None:
    """Raise `Terminated` or `KeyboardInterrupt` of a received signal again. Call this between steps.

    Python ignores exceptions in finalizers and in callbacks of weak references, so the first exception can be lost.
    """
    for request in _active:
        if request.number is not None:
            raise request.error()


@contextmanager
def defer_signals() -> Iterator[list[int]]:
    """Defer a signal to the end of the block, and list its number. A second signal takes effect immediately."""
    waiting: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if waiting:  # the block may be stuck
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
            raise Terminated(128 + waiting[0])  # the default action would skip all cleanup
        if waiting:
            signal.raise_signal(waiting[0])


def in_one_line(error: BaseException) -> str:
    """Return the message of an error on one line of at most 300 characters."""
    message = error.message if isinstance(error, CseError) else f"{type(error).__name__}: {error}"
    first = message.strip().partition("\n")[0]
    return first if len(first) <= _LONGEST_REASON else f"{first[: _LONGEST_REASON - 1]}…"


class _StopRequest:
    """Signal that was received in an `ending` block.

    The exception of a handler can be swallowed, or converted to another one by the C code that it interrupts.
    """

    number: int | None = None
    closing: bool = False
    """Whether the end of the run is being recorded, which a signal must not interrupt."""

    def error(self) -> BaseException:
        """Return the exception of the signal."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated(128 + (self.number or 0))

    def handlers(self) -> dict[signal.Signals, Handler]:
        """Return the handlers for the block. The one for Ctrl-C calls the current handler."""
        handlers: dict[signal.Signals, Handler] = dict.fromkeys(_TERMINATING, self._terminate)
        if current_thread() is main_thread() and callable(before := signal.getsignal(signal.SIGINT)):
            handlers[signal.SIGINT] = self._interrupt_with(before)
        return handlers

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        for each in _TERMINATING:  # often sent twice, and the end of the run must still be recorded
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        if not self.closing:
            raise self.error()

    def _interrupt_with(self, before: Handler) -> Handler:
        def interrupt(number: int, frame: FrameType | None) -> None:
            again, self.number = self.number is not None, number
            if again or not self.closing:  # a second Ctrl-C also interrupts the recording of the end
                before(number, frame)

        return interrupt


_active: list[_StopRequest] = []


def _install(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Any]:
    """Install handlers and return the previous ones. Ignored signals (nohup) stay ignored."""
    if current_thread() is not main_thread():  # Python installs handlers only in the main thread
        return {}
    caught = [each for each in handlers if signal.getsignal(each) != signal.SIG_IGN]
    return {each: signal.signal(each, handlers[each]) for each in caught}


def _restore(previous: Mapping[signal.Signals, Any]) -> None:
    for each, action in previous.items():
        # The handler that `_interrupt_with` called may have set Ctrl-C to ignored, because the process exits.
        if each != signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, action)
