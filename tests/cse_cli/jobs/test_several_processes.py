"""Several processes do one study together, as the jobs of a Slurm array do; some of them are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs
from cse_cli.runs.plans import plan_of_run
from tests.cse_cli.recipe.tiny_study import grid, times
from tests.support.forked import Forked
from tests.support.records import points, states
from tests.support.shrunken import recipe, small

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("several processes")]  # they share one costly fixture

STEPS = 60
RUNS = 6
Digits = dict[tuple[str, int], tuple[Any, ...]]
"""Experiment and seed → everything that training computes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a study of three cells and two seeds."""
    made = tmp_path_factory.mktemp("study")
    recipe(made, small(made), steps=STEPS, evaluate_every=0, checkpoint_every=10)
    grid(made, seeds="2")
    return made


def cse(folder: Path, **environment: str) -> Forked:
    return Forked(["cse_cli", "run", "tiny.toml", "--device", "cpu", "--json"], folder, **environment)


def digits(process: Forked) -> Digits:
    """Wait for a process to end and return the digits of all results that it printed."""
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    (study,) = json.loads(out)["studies"]
    assert study["failures"] == []
    compared = ("last_state", "scores", "curve", "selected_step", "steps")
    return {
        (json.dumps(one["identity"], sort_keys=True), one["seed"]): tuple(one[key] for key in compared)
        for one in study["results"]
    }


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Digits:
    """Return the digits of one process that does the whole study."""
    found = digits(cse(folder, CSE_HOME=str(tmp_path_factory.mktemp("alone")), CSE_MIRRORS="none"))
    assert len(found) == RUNS
    return found


def check_records() -> None:
    """Check that each run was done once, that nothing is left over, and that no step is missing."""
    assert states() == ["FINISHED"] * RUNS
    assert set(times().values()) == {1}
    cells = {(run.about.identity.experiment, plan_of_run(run.about)) for run in all_runs()}
    assert len(cells) == RUNS / 2, "all runs of a cell have the same plan"
    for run in all_runs():
        assert [step for step, _ in points(run.run_id, "train/loss")] == [1, *range(10, STEPS + 1, 10)]
        assert not list(run.about.path.glob("*.pt"))


def test_two_processes_share_a_study(folder: Path, alone: Digits) -> None:
    both = [cse(folder), cse(folder)]
    assert [digits(each) for each in both] == [alone, alone]
    check_records()
    starts = [read_history(run.about.path).starts for run in all_runs()]
    assert [len(each) for each in starts] == [1] * RUNS
    assert {each[0].data["pid"] for each in starts} == {one.pid for one in both}


@pytest.mark.exhaustive
@pytest.mark.parametrize("chance", range(5))
def test_two_of_four_processes_are_killed(chance: int, folder: Path, alone: Digits) -> None:
    """Two are killed at random moments; the others and the same command again lose and repeat nothing."""
    drawn = random.Random(chance)
    processes = [cse(folder) for _ in range(4)]
    while "RUNNING" not in states() and all(each.poll() is None for each in processes):
        time.sleep(0.05)
    killed = drawn.sample(processes, 2)
    for process in killed:
        time.sleep(drawn.uniform(0.1, 3))
        sys.stdout.write(f"chance {chance}: process {process.pid} is killed at {states()}\n")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert [digits(each) for each in processes if each not in killed] == [alone, alone]
    check_records()
    assert digits(cse(folder)) == alone
    check_records()
