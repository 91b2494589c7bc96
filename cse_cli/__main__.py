"""`cse` and `python -m cse_cli`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from threading import Timer
from types import FrameType
from typing import Any

from cse_cli.core.garbage import collect_rarely
from cse_cli.core.threads import limit_libraries

Handler = Callable[[int, FrameType | None], Any]


def main() -> None:
    """Run the command line. Ctrl-C, SIGTERM and SIGHUP end it with exit code 128 + the signal number.

    `runs.signals` handles signals during a run. These handlers close everything before and after it. An ignored signal,
    as under nohup, stays ignored.
    """
    collect_rarely()
    limit_libraries(os.environ)  # before torch is imported
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes do not import modules of the current directory
    caught: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        signal.signal(number, leave)
    sys.unraisablehook = _sends_again(caught, leave)
    try:
        from cse_cli.app import run

        run()
    except (Exception, KeyboardInterrupt):
        if not caught:
            raise
        # During an import, a signal can become another error, such as numpy's RecursionError.
        sys.exit(128 + caught[0])
    finally:
        for number in numbers:  # an exception at interpreter shutdown would only be printed
            signal.signal(number, signal.SIG_DFL)
        gc.freeze()  # no garbage collection at shutdown: 0.5 s instead of 3.2 s


def _sends_again(caught: list[int], leave: Handler) -> Callable[[sys.UnraisableHookArgs], None]:
    """Return a hook that repeats a signal that arrived in a finalizer, where Python only prints the exception.

    Args:
        caught: Signals that were received.
        leave: Handler of the signals.
    """

    def send() -> None:
        if signal.getsignal(caught[-1]) is leave:
            os.kill(os.getpid(), caught[-1])

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt | SystemExit):
            sys.__unraisablehook__(ignored)
        elif caught:
            again = Timer(0.1, send)
            again.daemon = True
            again.start()

    return hook


if __name__ == "__main__":
    main()
