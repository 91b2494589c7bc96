"""A tracker that is away, hangs or loses a run: nothing is lost or double, and no run waits or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cse_cli.core.paths import runs
from cse_cli.mirrors.mirror import Follower, State, configured, state_file
from cse_cli.mirrors.ui import sync as sync_command
from cse_cli.runs.claim import open_run
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import RunRecord
from tests.support.errors import refuses
from tests.support.records import recorded
from tests.support.trackers import Memory

pytestmark = pytest.mark.usefixtures("memory")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def begun(**about: object) -> tuple[RunRecord, Follower]:
    record = recorded(end=None, **about)
    return record, Follower(record.run_id)


def finish(record: RunRecord, follower: Follower) -> None:
    record.end("finished")
    follower.close()


def is_complete(record: RunRecord) -> bool:
    found = State.read(record.run_id, "memory")
    return found is not None and found.size == (record.path / "events.jsonl").stat().st_size


def test_events_arrive_while_the_run_is_at_work() -> None:
    record, follower = begun()
    record.metrics({"loss": 1.0}, 1)
    until(lambda: "metrics" in Memory.kinds(record.run_id))
    finish(record, follower)
    assert Memory.kinds(record.run_id) == ["started", "metrics", "finished"]
    assert is_complete(record)


def test_an_outage_is_bridged_with_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    record, follower = begun()
    until(lambda: Memory.kinds(record.run_id) == ["started"])
    Memory.down, before = True, Memory.calls
    for step in range(5):
        record.metrics({"loss": float(step)}, step)
    until(lambda: Memory.calls > before + 3)
    Memory.down = False
    finish(record, follower)
    assert Memory.kinds(record.run_id) == ["started", *["metrics"] * 5, "finished"]
    assert capsys.readouterr().err.count("warning: memory does not respond (connection refused)") == 1


@pytest.mark.parametrize("hangs", [False, True])
def test_a_tracker_that_stays_away_or_hangs_gets_the_run_later(hangs: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Memory.down, Memory.hangs = not hangs, threading.Event() if hangs else None
    record, follower = begun()
    record.end("stopped")
    began = time.monotonic()
    follower.close()
    assert time.monotonic() - began < 10
    told = capsys.readouterr().err
    assert ("no response" in told, "To send the rest: cse runs sync" in told) == (hangs, True)
    if not hangs:
        Memory.down = False
        sync_command()
        assert Memory.kinds(record.run_id) == ["started", "stopped"]


def test_lost_answers_send_nothing_twice() -> None:
    Memory.answers_lost = True
    record, follower = begun()
    record.metrics({"loss": 1.0}, 1)
    until(lambda: "metrics" in Memory.kinds(record.run_id))
    Memory.answers_lost = False
    finish(record, follower)
    assert Memory.kinds(record.run_id) == ["started", "metrics", "finished"]


def test_a_run_that_was_deleted_there_stays_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    record, follower = begun()
    until(lambda: Memory.kinds(record.run_id) == ["started"])
    Memory.deleted.add(record.run_id)
    record.metrics({"loss": 1.0}, 1)
    until(lambda: "it was deleted" in capsys.readouterr().err)
    finish(record, follower)
    sync_command()
    told = capsys.readouterr()
    assert (told.out, told.err) == ("memory: up to date\n", "")
    assert Memory.kinds(record.run_id) == ["started"]


def test_repeated_steps_of_a_resumed_run_are_sent_once() -> None:
    record = recorded(end=None)
    for step in (1, 2, 3):
        record.metrics({"loss": float(step)}, step)
    record.end("stopped")
    sync_command()
    resumed = open_run(record.run_id)
    follower = Follower(record.run_id)
    resumed.started(2)
    for step in (3, 4):
        resumed.metrics({"loss": float(step), "new": 0.0}, step)
    resumed.end("finished")
    follower.close()
    sent = [event.data for event in Memory.events[record.run_id] if event.kind == "metrics"]
    names = [(1, ["loss"]), (2, ["loss"]), (3, ["loss"]), (3, ["new"]), (4, ["loss", "new"])]
    assert [(data["step"], sorted(data["values"])) for data in sent] == names
    assert Memory.kinds(record.run_id)[-1] == "finished"


def test_a_killed_run_is_lost_and_continues_when_resumed() -> None:
    record = recorded(end=None)
    record.close()
    sync_command()
    before = Memory.calls
    sync_command()
    assert Memory.calls == before + 1  # it only connects
    assert Memory.kinds(record.run_id) == ["started", "lost"]
    resumed = open_run(record.run_id)
    resumed.started(0)
    resumed.end("finished")
    sync_command()
    assert Memory.kinds(record.run_id) == ["started", "lost", "started", "finished"]


def test_values_after_the_end_leave_a_run_finished() -> None:
    record = recorded()
    with (record.path / "events.jsonl").open("a") as file:  # as the verification of a search does
        file.write('{"kind": "metrics", "time": 1e9, "step": 1, "values": {"gain": 1.0}}\n')
    sync_command()
    assert Memory.kinds(record.run_id) == ["started", "finished", "metrics"]
    assert is_complete(record)


def test_a_run_at_work_in_another_process_is_not_lost() -> None:
    record = recorded(end=None)
    sync_command()
    assert Memory.kinds(record.run_id) == ["started"]
    assert not is_complete(record)


def test_two_senders_never_send_one_run() -> None:
    record = recorded()
    lock = FileLock(state_file(record.run_id, "memory").with_suffix(".lock"))
    assert lock.acquire(0.0)
    sync_command()
    assert Memory.kinds(record.run_id) == []
    lock.release()
    sync_command()
    assert Memory.kinds(record.run_id) == ["started", "finished"]


def test_a_child_waits_for_its_parent() -> None:
    parent = recorded(end=None, name="search", summary="tuning")
    child, follower = begun(parent=parent.run_id)
    time.sleep(0.1)
    assert Memory.kinds(child.run_id) == []
    above = Follower(parent.run_id)
    until(lambda: Memory.kinds(child.run_id) == ["started"])
    finish(child, follower)
    finish(parent, above)
    assert Memory.parents[child.run_id] == f"there-{parent.run_id}"


def test_a_parent_that_does_not_exist_is_left_out() -> None:
    child, follower = begun(parent="f" * 32)
    finish(child, follower)
    assert Memory.parents[child.run_id] == ""


def test_a_damaged_line_is_passed_over() -> None:
    record = recorded(end=None)
    record.metrics({"loss": 1.0}, 1)
    record.end("finished")
    file = record.path / "events.jsonl"
    file.write_text(file.read_text().replace('"values"', '"v"'))
    sync_command()
    assert Memory.kinds(record.run_id) == ["started", "damaged", "finished"]


def test_runs_of_another_tracker_are_sent_from_their_first_event() -> None:
    record = recorded()
    size = (record.path / "events.jsonl").stat().st_size
    state_file(record.run_id, "memory").parent.mkdir()
    elsewhere = State(uri="http://elsewhere", id="1", size=size)
    state_file(record.run_id, "memory").write_text(elsewhere.model_dump_json())
    sync_command()
    assert Memory.kinds(record.run_id) == ["started", "finished"]
    assert is_complete(record)


def test_events_that_cannot_be_sent_end_sync_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = recorded(), recorded()
    Memory.answers_lost = True
    with refuses("mirrors.not_sent", "memory") as caught:
        sync_command()
    assert caught.value.exit_code == 4
    told = capsys.readouterr().out
    assert all(f"{record.run_id[:8]} (run seed 0): read timed out" in told for record in (first, second))


def test_a_run_without_mirrors_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("none", "", " "):
        monkeypatch.setenv("CSE_MIRRORS", value)
        assert configured() == []
    record, follower = begun()
    finish(record, follower)
    assert not (runs() / record.run_id / "mirrors").exists()
    with refuses("mirrors.no_mirror"):
        sync_command()


def test_an_unknown_mirror_is_named_with_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CSE_MIRRORS")
    assert configured() == ["mlflow"]
    monkeypatch.setenv("CSE_MIRRORS", "mlflow,wandbb")
    with refuses("mirrors.unknown_mirror", "'wandbb'", "'wandb'") as caught:
        configured()
    assert caught.value.exit_code == 2
