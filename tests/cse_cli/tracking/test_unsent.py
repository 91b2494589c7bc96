"""A store that goes away while a run is on: nothing is lost, nothing recorded twice, training goes on."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from cse_cli import tracking
from cse_cli.tracking import mlflow_tracker
from cse_cli.tracking.mlflow_tracker import MlflowTracker
from cse_cli.tracking.store import Store
from cse_cli.tracking.unsent import Change, Unsent, sync, waiting
from tests.cse_cli.tracking.stores import Flaky, points


@pytest.fixture
def flaky(store: Store) -> Flaky:
    return Flaky(store.client)


@pytest.fixture
def tracker(store: Store, flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> MlflowTracker:
    run_id = tracking.start("run", {}, {}).run_id
    monkeypatch.setattr(mlflow_tracker, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(mlflow_tracker, "SEND_SECONDS", 0.0)
    return MlflowTracker(Store(store.uri, cast(Any, flaky)), run_id)


def refused(tracker: MlflowTracker, flaky: Flaky, **values: str) -> Unsent:
    flaky.down = True
    tracker.tags(values)
    return Unsent(tracker.run_id)


def test_an_outage_is_bridged(
    store: Store, flaky: Flaky, tracker: MlflowTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker.metrics({"loss": 0.0}, 0)
    tracker.flush()
    flaky.down = True
    for step in range(1, 5):
        tracker.metrics({"loss": float(step), "nan": float("nan")}, step)
    for name in ("weights", "config"):  # twice below the same name
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / name).write_bytes(b"123")
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
    assert (artifacts / "model" / "config").read_bytes() == b"123"
    assert (artifacts / "result.json").read_text() == "{}"


def test_requests_whose_answer_was_lost_are_not_recorded_twice(
    store: Store, flaky: Flaky, tracker: MlflowTracker
) -> None:
    flaky.answers_lost = True
    for step in range(5):
        tracker.metrics({"loss": float(step)}, step)
    tracker.flush()
    flaky.answers_lost = False
    tracker.finish("FINISHED")
    assert points(store.client, tracker.run_id, "loss") == [(s, float(s)) for s in range(5)]


def test_training_does_not_wait_for_a_slow_store(
    store: Store, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(tracker, "_client", SlowClient(store, answers))
    for step in range(20):
        tracker.metrics({"loss": float(step)}, step)
    assert points(store.client, tracker.run_id, "loss") == []
    answers.set()
    tracker.finish("FINISHED")
    assert points(store.client, tracker.run_id, "loss") == [(s, float(s)) for s in range(20)]


class SlowClient:
    def __init__(self, store: Store, answers: threading.Event) -> None:
        self.client = store.client
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        self.answers.wait(60)
        return getattr(self.client, name)


def test_a_store_that_stays_away_is_not_asked_at_every_step(
    flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = now = time.monotonic() + 1000
    monkeypatch.setattr(mlflow_tracker.time, "monotonic", lambda: now)
    monkeypatch.setattr(mlflow_tracker, "RETRY_SECONDS", 30.0)
    flaky.down = True
    asked = []
    for second in range(100):
        now = begin + second
        tracker.metrics({"loss": 0.0}, second)
        tracker.flush()
        if flaky.calls:
            asked.append(second)
            flaky.calls.clear()
    assert asked == [0, 30, 60, 90]


def test_a_run_that_ends_offline_is_sent_later_with_its_own_end(
    store: Store, flaky: Flaky, tracker: MlflowTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    flaky.down = True
    tracker.metrics({"loss": 1.0}, 1)
    tracker.finish("KILLED")
    assert "cse runs sync" in capsys.readouterr().err
    assert store.client.get_run(tracker.run_id).info.status == "RUNNING"
    ended = json.loads((Unsent(tracker.run_id).folder / "changes.json").read_text())["change"]["ended"]

    (sent,) = sync()
    assert (sent.run_id, sent.records, sent.refused) == (tracker.run_id, 2, None)
    run = store.client.get_run(tracker.run_id)
    assert (run.info.status, run.info.end_time) == ("KILLED", ended)
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]
    assert sync() == []


def test_the_next_start_sends_what_waits(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    tracker.finish("FAILED")
    tracking.start("next", {}, {})
    assert store.client.get_run(tracker.run_id).info.status == "FAILED"
    assert waiting() == []


def test_a_store_that_is_still_away_keeps_everything_waiting(home: Path, store: Store) -> None:
    unsent = Unsent("a" * 32)
    unsent.keep("http://127.0.0.1:9", Change(tags={"a": "b"}))
    tracking.start("of another store", {}, {})
    (sent,) = sync()
    assert sent.refused is not None
    assert "does not answer" in sent.refused
    assert unsent.exists()


def test_a_line_torn_by_a_kill_costs_only_itself(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    tracker.metrics({"loss": 1.0}, 1)
    with Unsent(tracker.run_id).metrics.open("a") as file:
        file.write('{"step": 2, "values": {"lo')
    resumed = MlflowTracker(Store(store.uri, cast(Any, flaky)), tracker.run_id, resumed=True)
    resumed.metrics({"loss": 2.0}, 2)
    resumed.finish("FINISHED")
    sync()
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0), (2, 2.0)]


def test_steps_done_again_after_a_resume_are_sent_once(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    for step in (1, 2, 3):
        tracker.metrics({"loss": float(step)}, step)
    resumed = MlflowTracker(Store(store.uri, cast(Any, flaky)), tracker.run_id, resumed=True)
    time.sleep(0.002)  # another time of day, so another point to the store
    for step in (2, 3, 4):
        resumed.metrics({"loss": float(step)}, step)
    resumed.finish("FINISHED")
    sync()
    assert points(store.client, tracker.run_id, "loss") == [(s, float(s)) for s in (1, 2, 3, 4)]


def test_a_record_of_another_version_is_kept_and_named(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    unsent = refused(tracker, flaky, a="1")
    file = unsent.folder / "changes.json"
    file.write_text(file.read_text().replace('"tags"', '"holograms"'))
    (sent,) = sync()
    assert "another version" in str(sent.refused)
    assert unsent.exists()


def test_an_interrupted_sending_is_done_again(
    store: Store, flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsent = refused(tracker, flaky, a="1")
    tracker.metrics({"loss": 1.0}, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Change, "send", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            unsent.send(store.client)
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]
    assert unsent.send(store.client) == 1
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]


def test_two_senders_do_not_get_in_each_others_way(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    flaky.down = True
    for step in range(50):
        tracker.metrics({"loss": 0.0}, step)
    tracker.flush()
    sent: list[int] = []
    senders = [Unsent(tracker.run_id) for _ in range(3)]
    threads = [threading.Thread(target=lambda one=one: sent.append(one.send(store.client))) for one in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sent) == [0, 0, 50]
    assert len(points(store.client, tracker.run_id, "loss")) == 50


def test_metrics_logged_while_another_process_sends_are_not_lost(
    store: Store, flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsent = refused(tracker, flaky, a="1")
    tracker.metrics({"loss": 1.0}, 1)
    tracker.flush()
    real = Change.send

    def send(change: Change, *to: Any) -> None:  # `metrics.jsonl` has been read by now
        tracker.metrics({"loss": 2.0}, 2)
        real(change, *to)

    with monkeypatch.context() as patch:
        patch.setattr(Change, "send", send)
        Unsent(tracker.run_id).send(store.client)
    flaky.down = False
    tracker.finish("FINISHED")
    assert not unsent.exists()
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0), (2, 2.0)]
