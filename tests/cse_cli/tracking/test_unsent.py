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
from cse_cli.tracking.reader import list_runs
from cse_cli.tracking.store import Store
from cse_cli.tracking.unsent import Change, Unsent, sync, waiting
from registry.errors import TrackingError
from tests.cse_cli.jobs.running import cse
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


SECRET = "http://me:hunter2@127.0.0.1:9"


def test_what_waits_for_a_store_with_a_password_does_not_keep_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsent = Unsent("a" * 32)
    unsent.keep(SECRET, Change(tags={"a": "b"}))
    assert not [file for file in home.rglob("*") if file.is_file() and "hunter2" in file.read_text()]
    (sent,) = sync()
    assert "set MLFLOW_TRACKING_URI to that address" in str(sent.refused)
    asked: list[str] = []

    def opened(uri: str) -> Store:
        asked.append(uri)
        raise TrackingError("away")

    monkeypatch.setattr("cse_cli.tracking.unsent.open_store", opened)
    for address in (SECRET, SECRET.replace("hunter2", "changed")):  # whatever the password is by then
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        (sent,) = sync()
        assert (asked.pop(), sent.refused) == (address, "away")


def test_what_an_older_version_kept_with_its_password_is_still_sent(
    store: Store, flaky: Flaky, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsent = refused(tracker, flaky, a="1")
    file = unsent.folder / "changes.json"
    older = {key: value for key, value in json.loads(file.read_text()).items() if key != "crc32"}
    file.write_text(json.dumps(older | {"uri": SECRET}))
    flaky.down = False
    assert sync(store) == []
    (sent,) = sync(Store(SECRET, store.client))
    assert (sent.refused, unsent.exists()) == (None, False)


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


# --- a store that answers, and refuses --------------------------------------------------------------------------------


def test_a_path_longer_than_a_data_set_may_be_called_is_recorded_by_its_end(
    store: Store, tracker: MlflowTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "/".join(["folder"] * 90) + "/dev.tsv"
    tracker.dataset(name, "d", "evaluation", name)
    tracker.finish("FINISHED")
    run = store.client.get_run(tracker.run_id)
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, len(data.dataset.name), run.info.status) == (name[-500:], 500, "FINISHED")
    assert (capsys.readouterr().err, waiting()) == ("", [])


def test_one_refused_record_keeps_back_no_other(
    store: Store, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cse_cli.tracking.unsent._LONGEST_DATASET", 1000)
    tracker.metrics({"loss": 1.0}, 1)
    tracker.dataset("x" * 501, "d", "evaluation", "x")
    tracker.dataset("stsb", "d", "test", "stsb")
    tracker.tags({"key": "value"})
    tracker.metrics({"loss": 2.0}, 2)
    tracker.finish("FINISHED")
    run = store.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["key"]) == ("FINISHED", "value")
    assert [one.dataset.name for one in run.inputs.dataset_inputs] == ["stsb"]
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0), (2, 2.0)]
    said = capsys.readouterr().err
    assert said.count("warning") == said.count("refuses records of run") == 1
    assert "'name' exceeds the maximum length of 500 characters" in said
    assert json.loads((waiting()[0].folder / "changes.json").read_text())["change"]["tags"] == {}

    (sent,) = sync()
    assert (sent.refused, sent.aside, sent.by_store) == (
        "'name' exceeds the maximum length of 500 characters",
        None,
        True,
    )
    (sent,) = sync(discard=True)
    assert sent.aside == Unsent(tracker.run_id).folder.with_name("refused-1")
    assert "xxxx" in (sent.aside / "changes.json").read_text()
    assert sync() == []


@pytest.mark.parametrize("what", ["run", "experiment", "for good"])
def test_a_run_deleted_while_it_is_at_work_is_told_once_and_can_be_given_up(
    what: str, store: Store, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = tracking.start("run", {}, {}, experiment="mini/simcse_en")
    run = store.client.get_run(tracker.run_id)
    if what == "experiment":
        store.client.delete_experiment(run.info.experiment_id)
    else:
        store.client.delete_run(tracker.run_id)
    if what == "for good":
        store.client._tracking_client.store._hard_delete_run(tracker.run_id)
    tracker.metrics({"loss": 1.0}, 1)
    tracker.flush()
    tracker.text("result.json", "{}")
    tracker.finish("FINISHED")
    said = capsys.readouterr().err
    assert said.count("warning") == said.count("'cse runs sync --discard' gives them up") == 1

    other = tracking.start("other", {}, {})
    other.finish("FINISHED")
    assert [one.name for one in list_runs()] == ["other"]
    code, out, err = cse("runs", "sync", capsys=capsys)
    assert (code, out) == (4, f"{tracker.run_id[:8]}: the run has been deleted there\n")
    assert "the tracking store refuses it" in err
    code, out, err = cse("runs", "sync", "--discard", capsys=capsys)
    folder = home / "runs" / tracker.run_id
    assert (code, err) == (0, "")
    assert (
        out == f"{tracker.run_id[:8]}: the run has been deleted there; given up, and kept in {folder / 'refused-1'}\n"
    )
    assert json.loads((folder / "refused-1" / "changes.json").read_text())["change"]["texts"] == {"result.json": "{}"}
    assert '"loss": 1.0' in (folder / "metrics.jsonl").read_text()
    assert cse("runs", "sync", capsys=capsys)[:2] == (0, "nothing is waiting\n")


def test_a_deleted_run_that_is_restored_gets_everything(store: Store, tracker: MlflowTracker) -> None:
    store.client.delete_run(tracker.run_id)
    tracker.metrics({"loss": 1.0}, 1)
    tracker.tags({"key": "value"})
    tracker.finish("FINISHED")
    store.client.restore_run(tracker.run_id)
    assert [one.refused for one in sync()] == [None]
    run = store.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["key"]) == ("FINISHED", "value")
    assert points(store.client, tracker.run_id, "loss") == [(1, 1.0)]


def test_what_an_absent_store_has_not_taken_is_not_given_up(home: Path) -> None:
    unsent = Unsent("a" * 32)
    unsent.keep("http://127.0.0.1:9", Change(tags={"a": "b"}))
    (sent,) = sync(discard=True)
    assert (sent.aside, sent.by_store, unsent.exists()) == (None, False, True)


def test_damaged_records_that_wait_are_told_and_given_up(
    store: Store, flaky: Flaky, tracker: MlflowTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    unsent = refused(tracker, flaky, a="1")
    file = unsent.folder / "changes.json"
    file.write_text(file.read_text().replace('"a": "1"', '"a": "2"'))
    flaky.down = False
    capsys.readouterr()
    code, out, err = cse("runs", "sync", capsys=capsys)
    assert code == 4
    assert f"{file} is damaged, or of another version of cse" in out
    assert "`cse runs sync --discard`" in " ".join(err.split())
    code, out, _ = cse("runs", "sync", "--discard", capsys=capsys)
    assert (code, "kept in" in out, waiting()) == (0, True, [])
    assert "a" not in store.client.get_run(tracker.run_id).data.tags


def test_records_after_damaged_ones_are_kept(store: Store, flaky: Flaky, tracker: MlflowTracker) -> None:
    unsent = refused(tracker, flaky, a="1")
    (unsent.folder / "changes.json").write_text("{")
    tracker.tags({"b": "2"})
    assert (unsent.folder.with_name("refused-1") / "changes.json").read_text() == "{"
    flaky.down = False
    assert sync(store)[0].refused is None
    assert store.client.get_run(tracker.run_id).data.tags["b"] == "2"


def test_a_damaged_line_of_metrics_is_not_sent(store: Store) -> None:
    unsent = Unsent(tracking.start("run", {}, {}).run_id)
    for step in (1, 2):
        unsent.append({"loss": 0.25}, step, step)
    first, second = unsent.metrics.read_text().splitlines()
    unsent.metrics.write_text(f"{first}\n{second.replace('0.25', '0.75')}\n")
    assert unsent.send_metrics(store.client) == 1
    assert points(store.client, unsent.run_id, "loss") == [(1, 0.25)]
