"""Studies in processes of their own: killed, interrupted, several at once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cse_cli.runs.index import all_runs, read_run
from tests.cse_cli.recipe.tiny_study import grid, times
from tests.support.forked import Forked
from tests.support.records import only_run, points, states
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process

STEPS = 150
"""Less than two seconds on an idle core: who must find a run at work asks for more."""
ENDLESS = 'set = ["train.steps=100000"]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe(tmp_path, small(tmp_path), steps=STEPS, evaluate_every=0, checkpoint_every=10)
    return tmp_path


def cse(study: str, *more: str, folder: Path) -> Forked:
    return Forked(["cse_cli", "run", study, "--device", "cpu", "--json", *more], folder)


def until(holds: Callable[[], bool], *processes: Forked) -> None:
    """Wait for something that the records show."""
    last = time.monotonic() + 120
    while time.monotonic() < last:
        if holds():
            return
        time.sleep(0.2)
    told = []
    for process in processes:
        process.kill()
        told.append(process.communicate()[1])
    raise AssertionError("\n".join(told))


def step() -> int:
    """Return the last recorded step of a running run; 0 if there is none."""
    recorded = [points(run.run_id, "train/loss") for run in all_runs() if run.state == "RUNNING"]
    return max((one[-1][0] for one in recorded if one), default=0)


def ended(process: Forked) -> tuple[int, dict, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, json.loads(out)["studies"][0], err


def test_killed_half_way_and_run_again(folder):
    """What is finished is not computed again; the run that was cut off goes on; the rest is done."""
    killed = cse(grid(folder, more='set = ["train.steps=400"]'), folder=folder)
    until(lambda: states() == ["FINISHED", "RUNNING"] and step() >= 30, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    (before,) = [run for run in all_runs() if run.state == "FINISHED"]

    code, again, err = ended(cse("tiny.toml", folder=folder))

    assert code == 0, err
    assert "3 cells × 1 seed = 3 runs: 1 finished, 2 to run" in err
    assert again["ran"] == 2
    assert err.count("resuming after step") == 1
    assert states() == ["FINISHED"] * 3
    assert set(times().values()) == {1}
    after = read_run(before.run_id)
    assert (after.started, after.ended) == (before.started, before.ended)
    assert [cell["finished"] for cell in again["cells"]] == [[0]] * 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop(number, code, folder):
    process = cse(grid(folder, more=ENDLESS), folder=folder)
    until(lambda: step() >= 20, process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, ""), err
    run = only_run()
    last = f"stopped in run {run.about.short}. To resume, run the same command again"
    assert err.rstrip().split("\n")[-1] == last
    assert "Traceback" not in err
    assert run.state == "STOPPED"


def test_workers(folder):
    code, one, err = ended(cse(grid(folder), "--workers", "2", folder=folder))
    assert code == 0, err
    assert (one["ran"], states(), set(times().values())) == (3, ["FINISHED"] * 3, {1})
    lines = [line for line in err.rstrip().split("\n")[2:] if "warning" not in line]
    assert sum(line.startswith("finished ") and " of 3 · losses.info_nce.temperature=" in line for line in lines) == 3
    assert sum(line.startswith(("run 1 of 3", "run 2 of 3", "run 3 of 3")) for line in lines) == 3
    assert not [line for line in lines if "step 10 " in line], err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(number, folder):
    process = cse(grid(folder, "[0.05, 0.1]", more=ENDLESS), "--workers", "2", folder=folder)
    until(lambda: states() == ["RUNNING"] * 2 and step() >= 20, process)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    os.kill(process.pid, number)
    psutil.wait_procs(workers, timeout=60)
    assert not any(worker.is_running() for worker in workers)
    process.communicate(timeout=60)
    assert states() == ["STOPPED"] * 2


def test_failures_of_workers_are_told_once(folder):
    (folder / "fails.toml").write_text(
        '[study]\ntitle = "Fails"\nrecipe = "small.toml"\nseeds = 1\n'
        '[[study.rows]]\nrow = "no number"\nset = ["train.learning_rate=1e30", "train.clip_norm=0"]\n'
        '[[study.rows]]\nrow = "no model"\nset = ["encoders.online.model=/no/such/model"]\n'
    )
    process = cse("fails.toml", "--workers", "2", folder=folder)
    out, err = process.communicate(timeout=240)
    (one,) = json.loads(out)["studies"]
    assert sorted((failure["row"], failure["exit_code"]) for failure in one["failures"]) == [
        ("no model", 3),
        ("no number", 1),
    ]
    assert process.returncode == 1, err
