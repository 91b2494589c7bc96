"""Runs in processes of their own, ended from outside: what is recorded, said, and done when they are taken up again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.forked import Forked
from tests.support.programs import step, until
from tests.support.records import only_run, points
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process

STEPS = 400


def cse(*arguments: object, folder: Path) -> Forked:
    return Forked(["cse_cli", "run", *arguments, "--device", "cpu", "--json"], folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=STEPS, evaluate_every=0, checkpoint_every=50)


def stop_in_the_middle(process: Forked, number: signal.Signals) -> tuple[str, str, str]:
    """Send a signal to the process's group after its first 60 steps; return run id, stdout, stderr."""
    until(lambda: step() >= 60, process)
    os.killpg(process.pid, number)
    return only_run().run_id, *process.communicate(timeout=60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop(number, code, file, tmp_path):
    process = cse(file, folder=tmp_path)
    run_id, out, err = stop_in_the_middle(process, number)
    assert (process.returncode, out) == (code, ""), err
    assert err.rstrip().split("\n")[-1] == f"stopped. To resume: cse run --resume {run_id[:8]}"
    assert "Traceback" not in err
    assert only_run().state == "STOPPED"


def test_killed_and_taken_up_again(file, tmp_path):
    killed = cse(file, folder=tmp_path)
    run_id, out, _ = stop_in_the_middle(killed, signal.SIGKILL)
    assert (killed.returncode, out) == (-signal.SIGKILL, "")
    assert only_run().state == "LOST"

    resumed = cse("--resume", run_id[:8], folder=tmp_path)
    resumed_out, resumed_err = resumed.communicate(timeout=120)
    whole_out, _ = cse(file, "--again", folder=tmp_path).communicate(timeout=120)

    assert resumed.returncode == 0, resumed_err
    assert "resuming after step" in resumed_err
    (broken,), (whole,) = json.loads(resumed_out)["results"], json.loads(whole_out)["results"]
    assert broken["run_id"] == run_id
    assert broken["last_state"] == whole["last_state"]
    assert broken["scores"] == whole["scores"]
    steps = [step for step, _ in points(run_id, "train/loss")]
    assert points(run_id, "train/loss") == points(whole["run_id"], "train/loss")
    assert steps == [1, *range(10, STEPS + 1, 10)]
