"""Runs in processes of their own: several at once, and one that is ended from outside."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.command import cse
from tests.support.forked import Forked
from tests.support.programs import CSE, below, ended, gone, running, running_steps, step, until
from tests.support.records import only_run, points, states
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path))


def at_once(*arguments: object, folder: Path):
    return running(*CSE, "run", *arguments, "--device", "cpu", "--workers", 2, "--json", folder=folder)


@pytest.mark.usefixtures("forked_children")
def test_a_study_runs_each_cell_once_and_names_failures(file, monkeypatch, capsys):
    study = '[study]\ntitle = "Fails"\nrecipe = "small.toml"\nseeds = 1\n'
    rows = {"no model": "encoders.online.model=/no/such/model", "good": "train.steps=3", "other": "train.steps=4"}
    study += "".join(f'[[study.rows]]\nrow = "{row}"\nset = ["{change}"]\n' for row, change in rows.items())
    (file.parent / "fails.toml").write_text(study)
    monkeypatch.chdir(file.parent)
    code, out, err = cse("run", "fails.toml", "--device", "cpu", "--workers", "2", "--json", capsys=capsys)
    assert code == 1, err
    (one,) = json.loads(out)["studies"]
    assert [(failure["row"], failure["exit_code"]) for failure in one["failures"]] == [("no model", 3)]
    assert err.count("no model · seed 0: ") == 1
    assert (one["ran"], states()) == (2, ["FINISHED"] * 2)
    lines = err.split("\n")
    assert sum(line.startswith(("run 1 of 3", "run 2 of 3", "run 3 of 3")) for line in lines) == 2
    assert sum(line.startswith("finished ") and " of 3 · " in line for line in lines) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive)])
def test_all_end_with_the_command(number, file):
    endless = ["--set", "train.steps=20000", "--set", "train.evaluate_every=0"]
    with at_once(file, *endless, "--seeds", "4", folder=file.parent) as process:
        until(lambda: len(running_steps()) == 2 and min(running_steps()) > 0, process)
        everything = below(process)
        assert len(everything) >= 2
        os.kill(process.pid, number)
        code, out, err = ended(process)
        assert gone(everything)
    assert states() == ["STOPPED"] * 2
    assert out == ""
    if number == signal.SIGINT:
        assert code == 130
        assert "stopped. To run the rest: cse run" in err, err
        assert "Traceback" not in err


# One run, ended from outside: what is recorded, said, and done when it is taken up again.


STEPS = 250


def started(*arguments: object, folder: Path) -> Forked:
    return Forked(["cse_cli", "run", *arguments, "--device", "cpu", "--json"], folder)


@pytest.fixture
def long(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=STEPS, evaluate_every=0, checkpoint_every=50)


def stop_in_the_middle(process: Forked, number: signal.Signals) -> tuple[str, str, str]:
    """Send a signal to the process's group after its first 60 steps; return run id, stdout, stderr."""
    until(lambda: step() >= 60, process)
    os.killpg(process.pid, number)
    return only_run().run_id, *process.communicate(timeout=60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop(number, code, long, tmp_path):
    process = started(long, folder=tmp_path)
    run_id, out, err = stop_in_the_middle(process, number)
    assert (process.returncode, out) == (code, ""), err
    assert err.rstrip().split("\n")[-1] == f"stopped. To resume: cse run --resume {run_id[:8]}"
    assert "Traceback" not in err
    assert only_run().state == "STOPPED"


def test_killed_and_taken_up_again(long, tmp_path):
    killed = started(long, folder=tmp_path)
    run_id, out, _ = stop_in_the_middle(killed, signal.SIGKILL)
    assert (killed.returncode, out) == (-signal.SIGKILL, "")
    assert only_run().state == "LOST"

    resumed = started("--resume", run_id[:8], folder=tmp_path)
    resumed_out, resumed_err = resumed.communicate(timeout=120)
    whole_out, _ = started(long, "--again", folder=tmp_path).communicate(timeout=120)

    assert resumed.returncode == 0, resumed_err
    assert "resuming after step" in resumed_err
    (broken,), (whole,) = json.loads(resumed_out)["results"], json.loads(whole_out)["results"]
    assert broken["run_id"] == run_id
    assert broken["last_state"] == whole["last_state"]
    assert broken["scores"] == whole["scores"]
    steps = [step for step, _ in points(run_id, "train/loss")]
    assert points(run_id, "train/loss") == points(whole["run_id"], "train/loss")
    assert steps == [1, *range(10, STEPS + 1, 10)]
