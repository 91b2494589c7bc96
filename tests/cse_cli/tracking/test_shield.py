"""A signal that comes while a store is written ends the run after the write, and leaves nothing locked."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cse_cli import tracking
from cse_cli.tracking import NullTracker, Terminated
from cse_cli.tracking import signals as ending
from cse_cli.tracking.store import Store
from cse_cli.tracking.tracker import unbroken
from tests.cse_cli.tracking.stores import points


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
def test_it_waits_for_the_outermost_block(number: int, raised: type[BaseException]) -> None:
    done = []

    def work() -> None:
        with unbroken():
            with unbroken():
                ask(number)
                done.append("inner")
            done.append("outer")
        done.append("after")

    with pytest.raises(raised), ending(NullTracker()):
        work()
    assert done == ["inner", "outer"]


def test_a_second_ctrl_c_does_not_wait() -> None:
    done = []

    def stuck() -> None:
        with unbroken():
            ask(signal.SIGINT)
            done.append("first")
            ask(signal.SIGINT)
            done.append("second")

    with pytest.raises(KeyboardInterrupt), ending(NullTracker()):
        stuck()
    assert done == ["first"]
    with unbroken():
        pass  # nothing waits any more


def test_a_block_in_another_thread_holds_nothing_back() -> None:
    entered, asked = [], []

    def elsewhere() -> None:
        with unbroken():
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
