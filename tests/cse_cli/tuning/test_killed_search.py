"""Searches whose process is killed: the budget is exact, and no trial is lost or repeated."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import psutil
import pytest

from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import folder_of
from cse_cli.tuning import study as studies
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.study import directory, load_study
from registry.errors import CseError
from tests.support.chosen import these
from tests.support.command import cse
from tests.support.forked import Forked
from tests.support.programs import below, ended, until
from tests.support.shrunken import recipe, small

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]
STEPS = 30
TRIALS = int(os.environ.get("CSE_SEARCH_TRIALS", "6"))
SEED = int(os.environ.get("CSE_CHAOS_SEED", "7"))


@pytest.fixture
def command(tmp_path, home):
    """Search a tiny recipe."""
    # Two sentences a batch: more would count as collapsed in a random model.
    settings = {"steps": STEPS, "evaluate_every": 10, "checkpoint_every": 5, "batch_size": 2, "collapse_cosine": 1.0}
    file = recipe(tmp_path, small(tmp_path), **settings)
    options = ["--range", "learning_rate=1e-5..1e-3:log", "--pruner", "none", "--name", "search", "--device", "cpu"]
    return ["tune", str(file), *options, "--trials", str(TRIALS)]


def found():
    """Return the trials of the search, or none before it exists."""
    with suppress(CseError, KeyError):  # it is being made
        return load_study("search").get_trials()
    return []


def settled():
    return len(studies.settled(found()))


def of_trials() -> list[RecordedRun]:
    """Return the runs of all trials."""
    return [run for run in all_runs() if run.about.search == "search" and not run.about.summary]


def training() -> list[int]:
    """Return the process of each trial that is training."""
    histories = [read_history(folder_of(run.run_id)) for run in of_trials() if run.state == "RUNNING"]
    processes = [one.starts[-1].data["pid"] for one in histories if one.starts and one.step < STEPS]
    return [pid for pid in processes if psutil.pid_exists(pid)]  # one that was killed has no successor yet


def outcome() -> list[tuple[Any, float | None, Any]]:
    """Return values, score and metrics of each trial. Check that every one ran once and no file is left over."""
    trials, runs = read_trials(load_study("search")), of_trials()
    assert [trial.state for trial in trials] == ["complete"] * TRIALS
    assert {run.end for run in runs} == {"finished"}
    assert sorted(run.run_id for run in runs) == sorted(str(trial.run_id) for trial in trials)
    assert not list(folder_of("").glob("*/*.pt"))
    (record,) = [run for run in all_runs() if run.about.summary]
    assert (record.about.summary, record.state) == ("tuning", "FINISHED")
    assert len(all_runs()) == TRIALS + 1
    assert {run.about.parent for run in runs} == {record.run_id}
    assert {path.name for path in directory("search").iterdir()} >= {"journal.jsonl", "lock"}
    found = []
    for trial in trials:
        metrics = read_history(folder_of(str(trial.run_id))).metrics
        digits = {name: one for name, one in metrics.items() if name.startswith(("train/loss", "dev/", "eval/"))}
        found.append((trial.values, trial.score, digits))
    return found


@pytest.mark.parametrize("sampler", these(["random"], ["random", "grid", "tpe"]))
def test_a_search_killed_three_times(command, sampler, tmp_path, home, monkeypatch):
    """The values, scores and curves are those of an uninterrupted search."""
    chance = random.Random(f"{SEED} {sampler}")
    whole = [*command, "--sampler", sampler]
    for least in (0, 2, 4):
        process = Forked(["cse_cli", *whole], tmp_path)
        until(lambda least=least: settled() >= least and training(), process, seconds=400)
        if not least:
            code, _, said = ended(Forked(["cse_cli", *whole], tmp_path), 100)
            assert (code, "search 'search' is already running in another process" in said) == (2, True)
        time.sleep(chance.uniform(0.0, 1.0))
        process.kill()
        process.communicate()
    code, _, said = ended(Forked(["cse_cli", *whole], tmp_path), 900)
    assert code == 0, said
    killed = outcome()

    monkeypatch.setenv("CSE_HOME", str(tmp_path / "alone"))
    code, _, said = ended(Forked(["cse_cli", *whole], tmp_path), 900)
    assert code == 0, said
    assert outcome() == killed


@pytest.mark.exhaustive
def test_a_search_with_workers_and_driver_killed(command, tmp_path, home):
    chance = random.Random(SEED)
    whole = [*command, "--workers", "3", "--sampler", "random"]
    driver = Forked(["cse_cli", *whole], tmp_path)
    for done in (1, 2):
        until(lambda least=done: settled() >= least, driver, seconds=400)
        time.sleep(chance.random())
        running = []
        until(lambda seen=running: bool(seen.extend(training()) or seen), driver)  # between two trials it has none
        os.kill(chance.choice(running), signal.SIGKILL)
    until(lambda: settled() >= 3, driver, seconds=400)
    time.sleep(chance.random())
    workers = below(driver)
    driver.kill()
    driver.wait(30)
    before = {trial.number: trial.score for trial in read_trials(load_study("search")) if trial.state == "complete"}
    code, _, said = ended(Forked(["cse_cli", *whole], tmp_path), 900)
    assert code == 0, said
    assert driver.stderr.read().count("its process was killed by SIGKILL") in (1, 2)  # killed before it saw the second
    assert not [worker for worker in workers if worker.is_running()]
    outcome()
    assert before.items() <= {trial.number: trial.score for trial in read_trials(load_study("search"))}.items()
    resumed = [line for line in said.splitlines() if "resuming interrupted trial" in line]
    assert 1 <= len(resumed) <= 3


@pytest.mark.exhaustive
def test_a_running_search_is_shown_as_running(command, tmp_path, capsys):
    driver = Forked(["cse_cli", *command, "--workers", "2", "--trials", "200"], tmp_path)  # more than end in this test
    try:
        until(lambda: bool(found()) and settled() >= 1, driver)
        assert "running" in cse("tune", "--best", "search", capsys=capsys)[1]
    finally:
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=120)
    assert "interrupted" in cse("tune", "--best", "search", capsys=capsys)[1]
