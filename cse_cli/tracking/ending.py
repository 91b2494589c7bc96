"""The right end state, however a run ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from cse_cli.tracking.tracker import Tracker

# Slurm and `docker stop` send SIGTERM, a closed terminal SIGHUP; MLflow by itself leaves such runs RUNNING for ever.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """The process was asked to end by a signal; exits with 128 + its number."""


class _Asked:
    """Whether and by which signal the process was asked to end.

    An exception that a handler raises may be swallowed or turned into another by the C code it breaks into, so the
    signal is remembered as well.
    """

    number: int | None = None

    def terminate(self, number: int, _frame: FrameType | None) -> None:
        # Whoever asked once may ask again: the run's end must still be written.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        raise Terminated(128 + number)


@contextmanager
def ending(tracker: Tracker) -> Iterator[None]:
    """Close the run as FINISHED, as FAILED after an exception, as KILLED after Ctrl-C or a signal."""
    asked = _Asked()
    # Only the main thread may install handlers; a signal that is ignored (nohup) stays ignored.
    caught = [s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN] if current_thread() is main_thread() else []
    previous = {each: signal.signal(each, asked.terminate) for each in caught}
    try:
        yield
        tracker.finish("FINISHED")
    except (KeyboardInterrupt, Terminated):
        tracker.finish("KILLED")
        raise
    except BaseException as error:
        if asked.number is not None:
            tracker.finish("KILLED")
            raise Terminated(128 + asked.number) from error
        tracker.finish("FAILED")
        raise
    finally:
        for each, action in previous.items():
            signal.signal(each, action)
