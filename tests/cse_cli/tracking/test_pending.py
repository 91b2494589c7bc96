"""A store that goes away while a run is on: nothing is lost, nothing recorded twice, training goes on."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from cse_cli import tracking
from cse_cli.tracking import mlflow_tracker
from cse_cli.tracking.mlflow_tracker import MlflowTracker, sync
from cse_cli.tracking.store import Store
from cse_cli.tracking.writes import Metrics, Pending, Point, Tags, waiting
from tests.cse_cli.tracking.stores import Flaky, points


@pytest.fixture
def flaky(store: Store) -> Flaky:
    return Flaky(store.client)


@pytest.fixture
def tracker(store: Store, flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> MlflowTracker:
    run_id = tracking.start("run", {}, {}).run_id
    monkeypatch.setattr(mlflow_tracker, "_FIRST_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(mlflow_tracker, "FLUSH_SECONDS", 0.0)
    return MlflowTracker(Store(store.uri, cast(Any, flaky), store.experiment), run_id)


def test_an_outage_is_bridged(
    store: Store, flaky: Flaky, tracker: MlflowTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker.metrics({"loss": 0.0}, 0)
    flaky.down = True
    for step in range(1, 5):
        tracker.metrics({"loss": float(step), "nan": float("nan")}, step)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"123")
    tracker.folder(tmp_path / "model", "model")
    shutil.rmtree(tmp_path / "model")
    tracker.text("result.json", "{}")
    tracker.dataset("stsb", "d", "test", "stsb")
    tracker.tags({"key": "value"})
    assert waiting()[0].run_id == tracker.run_id
    assert capsys.readouterr().err.count("warning") == 1

    flaky.down = False
    tracker.metrics({"loss": 5.0}, 5)
    tracker.finish("FINISHED")
    assert waiting() == []
    assert capsys.readouterr().err.count("answers again") == 1
    run = store.client.get_run(tracker.run_id)
    assert points(store.client, tracker.run_id, "loss") == [(s, float(s)) for s in range(6)]
    assert len(points(store.client, tracker.run_id, "nan")) == 4
    assert run.data.tags["key"] == "value"
    assert len(run.inputs.dataset_inputs) == 1
    assert run.info.status == "FINISHED"
    artifacts = Path(store.client.download_artifacts(tracker.run_id, ""))
    assert (artifacts / "model" / "weights").read_bytes() == b"123"
    assert (artifacts / "result.json").read_text() == "{}"


def test_requests_whose_answer_was_lost_are_not_recorded_twice(
    store: Store, flaky: Flaky, tracker: MlflowTracker
) -> None:
    flaky.answers_lost = True
    for step in range(5):
        tracker.metrics({"loss": float(step)}, step)
    flaky.answers_lost = False
    tracker.finish("FINISHED")
    assert points(store.client, tracker.run_id, "loss") == [(s, float(s)) for s in range(5)]


def test_a_store_that_stays_away_is_asked_ever_less_often(
    flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = now = time.monotonic() + 1000
    monkeypatch.setattr(mlflow_tracker.time, "monotonic", lambda: now)
    monkeypatch.setattr(mlflow_tracker, "HEARTBEAT_SECONDS", 1e9)
    tracker._wait = 5.0
    flaky.down = True
    tracker.metrics({"loss": 0.0}, 0)
    flaky.calls.clear()
    asked = []
    for second in range(1, 400):
        now = begin + second
        tracker.metrics({"loss": 0.0}, second)
        if flaky.calls:
            asked.append(second)
            flaky.calls.clear()
    assert asked == [5, 15, 35, 75, 155, 275, 395]


def test_a_run_that_ends_offline_is_sent_later_with_its_own_end(
    store: Store, flaky: Flaky, tracker: MlflowTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    flaky.down = True
    tracker.metrics({"loss": 1.0}, 1)
    tracker.finish("KILLED")
    assert "cse runs sync" in capsys.readouterr().err
    assert store.client.get_run(tracker.run_id).info.status == "RUNNING"
    ended = Pending(tracker.run_id, store.uri)
    times = [write.time for write in ended._read() if write.kind == "end"]

    (sent,) = sync()
    assert (sent.run_id, sent.records, sent.refused) == (tracker.run_id, 2, None)
    run = store.client.get_run(tracker.run_id)
    assert (run.info.status, run.info.end_time) == ("KILLED", times[0])
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]
    assert sync() == []


def test_the_next_start_sends_what_waits(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    tracker.finish("FAILED")
    tracking.start("next", {}, {})
    assert store.client.get_run(tracker.run_id).info.status == "FAILED"
    assert waiting() == []


def test_a_store_that_is_still_away_keeps_everything_waiting(home: Path, store: Store) -> None:
    pending = Pending("a" * 32, "http://127.0.0.1:9")
    pending.add(Tags(values={"a": "b"}))
    tracking.start("of another store", {}, {})
    (refused,) = sync()
    assert refused.refused is not None
    assert "does not answer" in refused.refused
    assert pending.exists()


def test_a_line_torn_by_a_kill_costs_only_itself(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    tracker.tags({"a": "1"})
    journal = Path(tracker._pending.folder / "journal.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"kind":"tags","values":{"tor')
    tracker.tags({"b": "2"})
    sync()
    tags = store.client.get_run(tracker.run_id).data.tags
    assert (tags["a"], tags["b"]) == ("1", "2")


def test_a_record_of_another_version_is_kept_and_named(store: Store, tracker: MlflowTracker) -> None:
    tracker._pending.add(Tags(values={"a": "1"}))
    with (tracker._pending.folder / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"hologram"}\n')
    (refused,) = sync()
    assert "another version" in str(refused.refused)
    assert tracker._pending.exists()


def test_an_interrupted_replay_goes_on_where_it_stopped(
    store: Store, flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = tracker._pending
    pending.add(Metrics(points=(Point(key="loss", value=1.0, step=1, time=1),)))
    pending.add(Tags(values={"a": "1"}))
    pending.add(Metrics(points=(Point(key="loss", value=2.0, step=2, time=2),)))
    real = Tags.send
    monkeypatch.setattr(Tags, "send", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        pending.replay(store.client)
    monkeypatch.setattr(Tags, "send", real)
    assert pending.replay(store.client) == 2
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0), (2, 2.0)]


def test_two_senders_do_not_get_in_each_others_way(store: Store, tracker: MlflowTracker) -> None:
    for step in range(50):
        tracker._pending.add(Metrics(points=(Point(key="loss", value=0.0, step=step, time=step),)))
    sent: list[int] = []
    threads = [threading.Thread(target=lambda: sent.append(tracker._pending.replay(store.client))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sent) == [0, 0, 50]
    assert len(points(store.client, tracker.run_id, "loss")) == 50
