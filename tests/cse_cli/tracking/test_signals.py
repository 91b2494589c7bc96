"""However a run ends, its record says how; and no signal breaks into a write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cse_cli import tracking
from cse_cli.tracking import NullTracker, Status, Terminated, stop_if_asked
from cse_cli.tracking.reader import list_runs
from cse_cli.tracking.signals import defer_signals, ending
from cse_cli.tracking.store import Store
from tests.cse_cli.tracking.stores import points


class Recorded(NullTracker):
    def __init__(self) -> None:
        self.ends: list[Status] = []

    def finish(self, status: Status) -> None:
        self.ends.append(status)


@pytest.fixture(autouse=True)
def nothing_ignored() -> Iterator[None]:
    """Let signals take effect also where pytest was started with nohup, or in the background of a script."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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
        ("SIGKILL", -signal.SIGKILL, "GONE"),
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


def ask(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python acts on it here


@contextmanager
def once_during(statement: str, number: int) -> Iterator[list[str]]:
    """Send a signal as soon as the database has begun a statement; yields those there were."""
    seen: list[str] = []

    def executed(_connection, _cursor, text, *_more) -> None:
        if statement in text:
            seen.append(text)
            if len(seen) == 1:
                ask(number)

    event.listen(Engine, "after_cursor_execute", executed)
    try:
        yield seen
    finally:
        event.remove(Engine, "after_cursor_execute", executed)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_write_comes_to_its_end_first(store: Store, number: int, raised: type[BaseException]) -> None:
    tracker = tracking.start("run", {}, {})
    after = []

    def record() -> None:
        tracker.metrics({"loss": 1.0}, 1)
        tracker.flush()
        after.append("the write")

    with once_during("INSERT INTO metrics", number) as seen, pytest.raises(raised), ending(tracker):
        record()
    assert len(seen) == 1  # not undone and done again
    assert after == []
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]
    assert store.client.get_run(tracker.run_id).info.status == "KILLED"


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_deferred_signal_waits_for_the_outermost_block(number: int, raised: type[BaseException]) -> None:
    done = []

    def work() -> None:
        with defer_signals():
            with defer_signals() as waiting:
                ask(number)
                assert waiting == [number]
                done.append("inner")
            done.append("outer")
        done.append("after")

    with pytest.raises(raised), ending(NullTracker()):
        work()
    assert done == ["inner", "outer"]


def test_a_second_ctrl_c_is_not_deferred() -> None:
    done = []

    def stuck() -> None:
        with defer_signals():
            ask(signal.SIGINT)
            done.append("first")
            ask(signal.SIGINT)
            done.append("second")

    with pytest.raises(KeyboardInterrupt), ending(NullTracker()):
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
        with pytest.raises(Terminated), ending(NullTracker()):
            ask(signal.SIGTERM)
    finally:
        asked.append(True)
        thread.join()


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_run_whose_creation_a_signal_interrupts_is_closed(
    store: Store, number: int, raised: type[BaseException]
) -> None:
    with once_during("INSERT INTO runs", number), pytest.raises(raised):
        tracking.start("run", {"a": "1"}, {})
    (run,) = list_runs()
    assert run.status == "KILLED"


def test_ctrl_c_while_the_end_is_written_waits_for_it() -> None:
    ends = []

    class Slow(NullTracker):
        def finish(self, status: str) -> None:
            ask(signal.SIGINT)
            ends.append(status)

    with pytest.raises(KeyboardInterrupt), ending(Slow()):
        pass
    assert ends == ["FINISHED"]


def test_ctrl_c_that_comes_out_as_another_error_still_ends_the_block_as_killed() -> None:
    def writer_in_c() -> None:
        try:
            ask(signal.SIGINT)
        except KeyboardInterrupt as end:
            raise RuntimeError("unexpected pos 64 vs 0") from end

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ending(NullTracker()):
        writer_in_c()
    assert signal.getsignal(signal.SIGINT) == before


def test_a_handler_of_ctrl_c_that_ignores_the_next_one_is_obeyed() -> None:
    """As in a process of several that leaves."""

    def leave(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, leave)
    try:
        with pytest.raises(KeyboardInterrupt), ending(NullTracker()):
            ask(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
