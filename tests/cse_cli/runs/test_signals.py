"""However a run ends, its record has the end, and no signal interrupts the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from cse_cli.runs.events import Pruned
from cse_cli.runs.signals import Terminated, defer_signals, ending, stop_if_asked
from registry.errors import CseError, StopRequested
from tests.support.records import only_run, points


class Recorded:
    """A record that only keeps how the run ended."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.reason = ""

    def end(self, kind: str, reason: str = "", **error: str) -> None:
        self.ends.append(kind)
        self.reason, self.error = reason, error


@pytest.fixture(autouse=True)
def nothing_ignored() -> Iterator[None]:
    """Let signals take effect also where pytest was started with nohup, or in the background of a script."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError, "failed"), (SystemExit, "failed"), (KeyboardInterrupt, "stopped"), (BrokenPipeError, "stopped"),
        (StopRequested("by cse runs stop"), "stopped"), (Pruned("step 5"), "pruned"),
    ],
)  # fmt: skip
def test_an_exception_passes_through(error: BaseException | type[BaseException], status: str) -> None:
    record = Recorded()
    with pytest.raises(error if isinstance(error, type) else type(error)), ending(record):
        raise error
    assert record.ends == [status]


def test_the_reason_is_the_first_line_of_the_message() -> None:
    for error, reason in {
        CseError("the loss is nan\nat step 3", "lower it"): "the loss is nan",
        ValueError("x" * 1000): "ValueError: xxx",
    }.items():
        record = Recorded()
        with pytest.raises(type(error)), ending(record):
            raise error
        assert record.reason.startswith(reason)
        assert len(record.reason) <= 300
    assert record.error == {
        "type": "RunFailedError", "message": f"ValueError: {'x' * 1000}", "action": None, "code": "runs.failed"
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_restores_the_handlers(number: signal.Signals) -> None:
    record = Recorded()
    before = signal.getsignal(number)
    with pytest.raises(Terminated) as caught, ending(record):
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number
    assert record.ends == ["stopped"]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_that_becomes_another_error_stops_the_run(number: int, raised: type[BaseException]) -> None:
    record = Recorded()

    def writer_in_c() -> None:
        try:
            send(number)
        except raised as end:
            raise RuntimeError("unexpected pos 64 vs 0") from end

    before = signal.getsignal(number)
    with pytest.raises(raised), ending(record):
        writer_in_c()
    assert record.ends == ["stopped"]
    assert signal.getsignal(number) == before


class Slow(Recorded):
    """A record whose end is interrupted by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def end(self, kind: str, reason: str = "") -> None:
        send(self.number)
        super().end(kind, reason)


@pytest.mark.parametrize(
    ("number", "first", "raised", "ended"),
    [
        (signal.SIGTERM, [signal.SIGTERM], Terminated, "stopped"),  # a second one
        (signal.SIGINT, [], KeyboardInterrupt, "finished"),
    ],
)
def test_a_signal_does_not_disturb_the_end(number: int, first: list[int], raised: type, ended: str) -> None:
    record = Slow(number)
    with pytest.raises(raised), ending(record):
        list(map(send, first))
    assert record.ends == [ended]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    record = Recorded()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending(record):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert record.ends == ["finished"]


PROGRAM = """
import os, signal, sys, time
from cse_cli.runs.events import Pruned
from cse_cli.runs.signals import ending
from tests.support.records import recorded
record = recorded(end=None)
with ending(record):
    record.metrics({"loss": 1.0}, 1)
    if sys.argv[1] == "exception":
        raise ValueError("broken")
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(60)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("how", "code", "state"),
    [
        ("exception", 1, "FAILED"),
        ("SIGTERM", 143, "STOPPED"),
        ("SIGHUP", 129, "STOPPED"),
        ("SIGINT", -signal.SIGINT, "STOPPED"),
        ("SIGKILL", -signal.SIGKILL, "LOST"),
    ],
)
def test_a_real_process_leaves_the_right_state(home: Path, how: str, code: int, state: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == code, ran.stderr
    run = only_run()
    assert run.state == state
    assert points(run.run_id, "loss") == [(1, 1.0)]


def test_a_signal_that_a_finalizer_swallows_is_raised_again() -> None:
    """Python ignores exceptions in `__del__`, so a signal that arrives there would be lost."""

    class Finalized:
        def __del__(self) -> None:
            with contextlib.suppress(Terminated):  # as the interpreter does, without the message
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)

    def swallow(*, goes_on: bool) -> None:
        with ending(Recorded()):
            del [Finalized()][0]
            if goes_on:
                stop_if_asked()
                raise AssertionError("it went on")

    for goes_on in (True, False):
        with pytest.raises(Terminated) as ended:
            swallow(goes_on=goes_on)
        assert ended.value.code == 143
        stop_if_asked()


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python acts on it here


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_deferred_signal_waits_for_the_outermost_block(number: int, raised: type[BaseException]) -> None:
    done = []

    def work() -> None:
        with defer_signals():
            with defer_signals() as waiting:
                send(number)
                assert waiting == [number]
                done.append("inner")
            done.append("outer")
        done.append("after")

    with pytest.raises(raised), ending(Recorded()):
        work()
    assert done == ["inner", "outer"]


def test_a_second_ctrl_c_is_not_deferred() -> None:
    done = []

    def stuck() -> None:
        with defer_signals():
            send(signal.SIGINT)
            done.append("first")
            send(signal.SIGINT)
            done.append("second")

    with pytest.raises(KeyboardInterrupt), ending(Recorded()):
        stuck()
    assert done == ["first"]
    with defer_signals():
        pass  # nothing waits any more


def test_signals_are_not_deferred_in_another_thread() -> None:
    entered, asked = [], []

    def elsewhere() -> None:
        with defer_signals():
            entered.append(True)
            while not asked:
                time.sleep(0.01)

    thread = Thread(target=elsewhere)
    thread.start()
    try:
        while not entered:
            time.sleep(0.01)
        with pytest.raises(Terminated), ending(Recorded()):
            send(signal.SIGTERM)
    finally:
        asked.append(True)
        thread.join()


def test_a_handler_of_ctrl_c_that_ignores_the_next_one_is_obeyed() -> None:
    """One of several processes does so when it leaves."""

    def leave(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, leave)
    try:
        with pytest.raises(KeyboardInterrupt), ending(Recorded()):
            send(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
