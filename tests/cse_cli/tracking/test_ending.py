"""However a run ends, its record says how."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cse_cli.tracking import NullTracker, Status, Terminated, stop_if_asked
from cse_cli.tracking import signals as ending
from cse_cli.tracking.reader import list_runs
from cse_cli.tracking.store import Store


class Recorded(NullTracker):
    def __init__(self) -> None:
        self.ends: list[Status] = []

    def finish(self, status: Status) -> None:
        self.ends.append(status)


def test_the_end_of_the_block_is_finished() -> None:
    tracker = Recorded()
    with ending(tracker):
        pass
    assert tracker.ends == ["FINISHED"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, "FAILED"), (SystemExit, "FAILED"), (KeyboardInterrupt, "KILLED"), (BrokenPipeError, "KILLED")],
)
def test_an_exception_passes_through(error: type[BaseException], status: Status) -> None:
    tracker = Recorded()
    with pytest.raises(error), ending(tracker):
        raise error
    assert tracker.ends == [status]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block_as_killed_and_handlers_come_back(number: signal.Signals) -> None:
    tracker = Recorded()
    before = signal.getsignal(number)
    with pytest.raises(Terminated) as caught, ending(tracker):
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number
    assert tracker.ends == ["KILLED"]
    assert signal.getsignal(number) == before


def test_a_signal_that_comes_out_as_another_error_still_ends_the_block_as_killed() -> None:
    tracker = Recorded()

    def writer_in_c() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Terminated as end:
            raise RuntimeError("unexpected pos 64 vs 0") from end

    with pytest.raises(Terminated) as caught, ending(tracker):
        writer_in_c()
    assert caught.value.code == 143
    assert tracker.ends == ["KILLED"]


def test_a_second_signal_does_not_disturb_the_end() -> None:
    class Slow(Recorded):
        def finish(self, status: Status) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super().finish(status)

    tracker = Slow()
    with pytest.raises(Terminated), ending(tracker):
        os.kill(os.getpid(), signal.SIGTERM)
    assert tracker.ends == ["KILLED"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    tracker = Recorded()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending(tracker):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert tracker.ends == ["FINISHED"]


PROGRAM = """
import os, signal, sys, time
from cse_cli import tracking
tracker = tracking.start("run", {}, {})
with tracking.ending(tracker):
    tracker.metrics({"loss": 1.0}, 1)
    if sys.argv[1] == "exception":
        raise ValueError("broken")
    if sys.argv[1] == "SIGKILL":
        tracker.flush()
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(60)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("exception", 1, "FAILED"),
        ("SIGTERM", 143, "KILLED"),
        ("SIGHUP", 129, "KILLED"),
        ("SIGINT", -signal.SIGINT, "KILLED"),
        ("SIGKILL", -signal.SIGKILL, "STALE"),
    ],
)
def test_a_real_process_leaves_the_right_state(store: Store, home: Path, how: str, code: int, status: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == code, ran.stderr
    (run,) = list_runs()
    assert run.status == status
    assert [m.value for m in store.client.get_metric_history(run.run_id, "loss")] == [1.0]


def test_a_signal_that_a_finaliser_swallows_is_raised_again() -> None:
    """Python ignores exceptions in `__del__`, so a signal that arrives there would be lost."""

    class Finalised:
        def __del__(self) -> None:
            with contextlib.suppress(Terminated):  # as the interpreter does, without the message
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)

    def swallow(*, goes_on: bool) -> None:
        with ending(NullTracker()):
            del [Finalised()][0]
            if goes_on:
                stop_if_asked()
                raise AssertionError("it went on")

    for goes_on in (True, False):
        with pytest.raises(Terminated) as ended:
            swallow(goes_on=goes_on)
        assert ended.value.code == 143
        stop_if_asked()
