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

Handler = Callable[[int, FrameType | None], Any]


def main() -> None:
    """Run the command line; Ctrl-C, SIGTERM and SIGHUP end it in order, with 128 + their number.

    A run has handlers of its own while it is recorded (`tracking.signals`); these are for before and after, where the
    system's would end the process without closing anything. A signal that is ignored, as under nohup, stays ignored.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # no process started from here imports modules of the current folder
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
        # Where a signal breaks into an import, that may make another error of it: numpy a RecursionError.
        sys.exit(128 + caught[0])
    finally:
        for number in numbers:  # Python takes its modules down, where an exception would only be printed
            signal.signal(number, signal.SIG_DFL)
        gc.freeze()  # and does not look through what the libraries made: 0.5 s instead of 3.2 s


def _sends_again(caught: list[int], leave: Handler) -> Callable[[sys.UnraisableHookArgs], None]:
    """Return a hook that sends a signal again which came in a finaliser: Python prints what `leave` raises there.

    Args:
        caught: Signals that have come.
        leave: Their handler; a run's own one remembers them.
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
