"""Several runs at once, a process each: the same results as one after the other, and all ended by one Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.command import cse
from tests.support.programs import CSE, below, ended, gone, results, running, running_steps, until
from tests.support.records import states
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path))


def at_once(*arguments: object, folder: Path):
    return running(*CSE, "run", *arguments, "--device", "cpu", "--workers", 2, "--json", folder=folder)


def test_the_results_are_those_of_one_after_the_other(file, capsys):
    with at_once(file, "--seeds", "3", folder=file.parent) as process:
        code, out, err = ended(process)
    assert code == 0, err
    together = results(out)
    assert [one.seed for one in together] == [0, 1, 2]
    assert states() == ["FINISHED"] * 3
    for seed in range(3):
        assert f"[small seed {seed}] step 3  dev.spearman " in err

    code, out, _ = cse("run", str(file), "--seeds", "3", "--device", "cpu", "--again", "--json", capsys=capsys)
    assert code == 0
    assert not {one.run_id for one in results(out)} & {one.run_id for one in together}
    assert [one.last_state for one in results(out)] == [one.last_state for one in together]
    assert [one.scores for one in results(out)] == [one.scores for one in together]


def test_a_study_runs_each_cell_once_and_names_failures(file):
    study = '[study]\ntitle = "Fails"\nrecipe = "small.toml"\nseeds = 1\n'
    rows = {"no model": "encoders.online.model=/no/such/model", "good": "train.steps=3", "other": "train.steps=4"}
    study += "".join(f'[[study.rows]]\nrow = "{row}"\nset = ["{change}"]\n' for row, change in rows.items())
    (file.parent / "fails.toml").write_text(study)
    with at_once("fails.toml", folder=file.parent) as process:
        code, out, err = ended(process)
    assert code == 1, err
    (one,) = json.loads(out)["studies"]
    assert [(failure["row"], failure["exit_code"]) for failure in one["failures"]] == [("no model", 3)]
    assert err.count("no model · seed 0: ") == 1
    assert (one["ran"], states()) == (2, ["FINISHED"] * 2)
    lines = err.split("\n")
    assert sum(line.startswith(("run 1 of 3", "run 2 of 3", "run 3 of 3")) for line in lines) == 3
    assert sum(line.startswith("finished ") and " of 3 · " in line for line in lines) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive)])
def test_all_end_with_the_command(number, file):
    long = ["--set", "train.steps=20000", "--set", "train.evaluate_every=0"]
    with at_once(file, *long, "--seeds", "4", folder=file.parent) as process:
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
        assert err.count("] stopped") == 2, err
        assert "Traceback" not in err
