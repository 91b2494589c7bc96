"""`cse` and `python -m cse_cli`."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; SIGTERM and SIGHUP end it in order, with 128 + their number.

    A run has handlers of its own while it is recorded (`tracking.signals`); these are for before and after, where the
    system's would end the process without closing anything. A signal that is ignored, as under nohup, stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit)
    from cse_cli.app import run

    run()


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
