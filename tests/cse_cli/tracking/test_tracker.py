"""What is recorded of a run, and what is not recorded twice."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cse_cli import tracking
from cse_cli.tracking import mlflow_tracker
from cse_cli.tracking.mlflow_tracker import MlflowTracker, legal_name
from cse_cli.tracking.store import Store
from registry.errors import CseError, UnknownNameError
from tests.cse_cli.tracking.stores import killed, points


def test_a_run_is_recorded_with_everything(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    tracker = tracking.start("quickstart seed 0", {"train.steps": "3"}, {"cse.recipe": "quickstart"})
    for step in (1, 2, 3):
        tracker.metrics({"train/loss": 1 / step}, step)
    tracker.text("deep/recipe.toml", "title = 'ä'\n")
    tracker.folder(tmp_path / "model", "model")
    tracker.dataset("stsb/dev", "a" * 64, "evaluation", "stsb")
    tracker.finish("FINISHED")

    run = store.client.get_run(tracker.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "quickstart seed 0")
    assert run.data.params == {"train.steps": "3"}
    assert run.data.tags["cse.recipe"] == "quickstart"
    assert run.data.tags["cse.host"] == socket.gethostname()
    assert points(store.client, tracker.run_id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("stsb/dev", "a" * 36)
    assert data.tags[0].value == "evaluation"
    folder = Path(os.environ["CSE_HOME"], "artifacts", tracker.run_id, "artifacts")
    assert (folder / "deep/recipe.toml").read_text(encoding="utf-8") == "title = 'ä'\n"
    assert (folder / "model/1_Pooling/config.json").exists()


def test_a_run_can_belong_to_another(store: Store) -> None:
    parent = tracking.start("study", {}, {})
    child = tracking.start("trial 0", {}, {}, parent=parent.run_id)
    assert store.client.get_run(child.run_id).data.tags["mlflow.parentRunId"] == parent.run_id


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("train/loss", "train/loss"),
        ("p@5", "p_at_5"),
        ("losses[0]", "losses.0"),
        ("a+b (%)", "a_b ___"),
        ("../x", "x"),
        ("a//b/./c/", "a/b/c"),
        ("größe", "größe"),
        ("", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names_become_legal_and_the_store_takes_them(store: Store, name: str, legal: str) -> None:
    assert legal_name(name) == legal
    tracker = tracking.start("run", {name: "1"}, {})
    tracker.metrics({name: 2.0}, 0)
    tracker.flush()
    data = store.client.get_run(tracker.run_id).data
    assert (data.metrics, data.params) == ({legal: 2.0}, {legal: "1"})


def test_nan_is_kept_and_infinity_becomes_a_note(store: Store) -> None:
    tracker = tracking.start("run", {}, {})
    tracker.metrics({"a": math.nan, "b": math.inf, "c": 1.0}, 4)
    tracker.metrics({"b": -math.inf}, 5)
    tracker.flush()
    data = store.client.get_run(tracker.run_id).data
    assert math.isnan(data.metrics["a"])
    assert "b" not in data.metrics
    assert data.metrics["c"] == 1.0
    assert data.tags["cse.infinite.b"] == "inf at step 4"


def test_long_parameters_are_cut_where_it_shows(store: Store) -> None:
    tracker = tracking.start("run", {"long": "x" * 7000, **{f"p{i}": "v" for i in range(150)}}, {})
    params = store.client.get_run(tracker.run_id).data.params
    assert len(params) == 151
    assert params["long"] == "x" * 5999 + "…"


def test_points_are_on_disk_at_once_and_written_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MlflowTracker(store, tracking.start("run", {}, {}).run_id)
    monkeypatch.setattr(mlflow_tracker, "SEND_SECONDS", 1e9)
    for step in range(10):
        tracker.metrics({"loss": 0.0, "nan": math.nan}, step)
    lines = (Path(os.environ["CSE_HOME"]) / "runs" / tracker.run_id / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(10))
    assert points(store.client, tracker.run_id, "loss") == []
    tracker.flush()
    assert len(points(store.client, tracker.run_id, "loss")) == 10


def test_a_resumed_run_goes_on_without_doubles_or_new_parameters(store: Store) -> None:
    first = tracking.start("run", {"a": "1"}, {})
    for step in range(8):
        first.metrics({"loss": float(step), "dev": 1.0}, step)
    first.flush()
    killed(first)  # after step 7; the last checkpoint was at step 4

    again = tracking.start("run", {"a": "2"}, {"note": "resumed"}, run_id=first.run_id)
    assert store.client.get_run(first.run_id).info.status == "RUNNING"
    for step in range(5, 12):
        again.metrics({"loss": float(step), "new": 0.0}, step)
    again.finish("FINISHED")

    run = store.client.get_run(first.run_id)
    assert points(store.client, first.run_id, "loss") == [(s, float(s)) for s in range(12)]
    assert [step for step, _ in points(store.client, first.run_id, "new")] == list(range(5, 12))
    assert run.data.params == {"a": "1"}
    assert run.data.tags["note"] == "resumed"
    assert run.info.status == "FINISHED"


def test_an_unknown_run_is_not_resumed(store: Store) -> None:
    with pytest.raises(UnknownNameError, match="no run 'ffff'"):
        tracking.start("run", {}, {}, run_id="ffff")


@pytest.mark.process
def test_a_run_of_a_living_process_is_not_resumed(store: Store, home: Path) -> None:
    first = tracking.start("run", {}, {})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        born = psutil.Process(other.pid).create_time()
        first.tags({"cse.pid": str(other.pid), "cse.process_started": f"{born:.2f}"})
        killed(first)
        (home / "runs" / first.run_id / "lock").unlink()  # as an earlier version records a run
        with pytest.raises(CseError, match=f"still going on: process {other.pid}"):
            tracking.start("run", {}, {}, run_id=first.run_id)
        other.communicate(b"\n")
    assert tracking.start("run", {}, {}, run_id=first.run_id).run_id == first.run_id


def test_what_breaks_in_the_stores_thread_is_raised_by_the_next_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = tracking.start("run", {}, {})

    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(tracker._client, "log_batch", broken)  # type: ignore[attr-defined]
        tracker.metrics({"loss": 1.0}, 1)
        with pytest.raises(ZeroDivisionError):
            tracker.flush()
    tracker.finish("FAILED")
    assert store.client.get_run(tracker.run_id).info.status == "FAILED"


def test_a_run_shows_that_it_lives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = tracking.start("run", {}, {"cse.heartbeat": "long ago"})
    tracker.flush()
    assert store.client.get_run(tracker.run_id).data.tags["cse.heartbeat"] == "long ago"
    monkeypatch.setattr(mlflow_tracker, "HEARTBEAT_SECONDS", 0.0)
    tracker.flush()
    assert store.client.get_run(tracker.run_id).data.tags["cse.heartbeat"].endswith("+00:00")


def test_the_first_end_counts(store: Store) -> None:
    tracker = tracking.start("run", {}, {})
    tracker.finish("KILLED")
    tracker.finish("FINISHED")
    assert store.client.get_run(tracker.run_id).info.status == "KILLED"


def test_the_machine_is_sampled_while_a_run_is_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.delenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING")
    tracker = tracking.start("run", {}, {})
    until = time.monotonic() + 20
    while not (found := store.client.get_run(tracker.run_id).data.metrics) and time.monotonic() < until:
        time.sleep(0.05)
    tracker.finish("FINISHED")
    assert 0 < found["system/system_memory_usage_percentage"] < 100
    assert all(name.startswith("system/") for name in found)


def test_the_machine_is_not_sampled_where_that_is_switched_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    tracker = tracking.start("run", {}, {})
    time.sleep(0.2)
    tracker.finish("FINISHED")
    assert store.client.get_run(tracker.run_id).data.metrics == {}


@pytest.mark.process
def test_importing_the_package_imports_no_mlflow() -> None:
    code = "import sys, cse_cli.tracking as t; t.NullTracker().finish('FINISHED'); print('mlflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_run_writes_nothing_to_the_screen(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = tracking.start("run", {}, {})
    tracker.metrics({"loss": 1.0}, 1)
    tracker.finish("FINISHED")
    assert capfd.readouterr() == ("", "")
