"""Runs in processes of their own, ended from outside: what is recorded, said, and done when they are taken up again."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from cse_cli.tracking.store import Store
from tests.cse_cli.tracking.stores import fresh_store, points
from tests.forked import Forked
from tests.shrunken import recipe, small

pytestmark = pytest.mark.process

STEPS = 400


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample the machine often, so that signals and kills fall between and into such records too."""
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")


def cse(*arguments: object, folder: Path) -> Forked:
    return Forked(["cse_cli", "run", *arguments, "--device", "cpu", "--json"], folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=STEPS, evaluate_every=0, checkpoint_every=50)


@pytest.fixture
def store(home: Path) -> Store:
    return fresh_store(home)


def stop_in_the_middle(process: Forked, store: Store, number: signal.Signals) -> tuple[str, str, str]:
    """Send a signal to the process's group after its first 60 steps; return run id, stdout, stderr."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        for run in store.client.search_runs(list(store.experiments())):
            recorded = points(store.client, run.info.run_id, "train/loss")
            if run.info.status == "RUNNING" and recorded and recorded[-1][0] >= 60:
                os.killpg(process.pid, number)
                return run.info.run_id, *process.communicate(timeout=60)
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"no run got far enough:\n{process.communicate()[1]}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop(number, code, file, store, tmp_path):
    process = cse(file, folder=tmp_path)
    run_id, out, err = stop_in_the_middle(process, store, number)
    assert (process.returncode, out) == (code, ""), err
    assert err.rstrip().split("\n")[-1] == f"stopped; go on with: cse run --resume {run_id[:8]}"
    assert "Traceback" not in err
    assert store.client.get_run(run_id).info.status == "KILLED"


def test_killed_and_taken_up_again(file, store, tmp_path):
    killed = cse(file, folder=tmp_path)
    run_id, out, _ = stop_in_the_middle(killed, store, signal.SIGKILL)
    assert (killed.returncode, out) == (-signal.SIGKILL, "")
    assert store.client.get_run(run_id).info.status == "RUNNING"

    resumed = cse("--resume", run_id[:8], folder=tmp_path)
    resumed_out, resumed_err = resumed.communicate(timeout=120)
    whole_out, _ = cse(file, folder=tmp_path).communicate(timeout=120)

    assert resumed.returncode == 0, resumed_err
    assert "going on after step" in resumed_err
    (broken,), (whole,) = json.loads(resumed_out)["results"], json.loads(whole_out)["results"]
    assert broken["run_id"] == run_id
    assert broken["last_state"] == whole["last_state"]
    assert broken["scores"] == whole["scores"]
    steps = [step for step, _ in points(store.client, run_id, "train/loss")]
    assert points(store.client, run_id, "train/loss") == points(store.client, whole["run_id"], "train/loss")
    assert steps == [1, *range(10, STEPS + 1, 10)]
