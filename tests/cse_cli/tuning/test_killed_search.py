"""A search in processes of its own, some of them killed: an exact budget, nothing lost, nothing done twice."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest
from optuna.trial import TrialState

from cse_cli.core.run_folder import is_finished
from cse_cli.core.run_status import all_statuses
from cse_cli.tracking.reader import list_runs
from cse_cli.tracking.store import open_store
from cse_cli.tuning import study as studies
from cse_cli.tuning.study import load_study
from registry.errors import CseError
from tests.cse_cli.jobs.commands import below, ended, until
from tests.cse_cli.jobs.running import cse
from tests.cse_cli.tracking.stores import fresh_store, points
from tests.forked import Forked
from tests.shrunken import recipe, small

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]
STEPS = 30


@pytest.fixture
def command(tmp_path, home):
    """Search a tiny recipe."""
    fresh_store(home)
    # Two sentences a batch: the vectors of a random model are so alike that more would count as collapsed.
    settings = {"steps": STEPS, "evaluate_every": 10, "checkpoint_every": 5, "batch_size": 2, "collapse_cosine": 1.0}
    file = recipe(tmp_path, small(tmp_path), **settings)
    options = ["--range", "learning_rate=1e-5..1e-3:log", "--pruner", "none", "--name", "search", "--device", "cpu"]
    return ["tune", str(file), *options]


TRIALS = 12


def found():
    """Return the trials of the study, none before it is made."""
    with suppress(CseError, KeyError):  # it is being made
        return load_study(None, "search").get_trials()
    return []


def settled():
    return len(studies.settled(found()))


def training():
    """Return the process of each trial whose training is not at its end."""
    return [run.pid for run in all_statuses() if run.step < STEPS and not run.is_gone]


def test_a_search_with_workers_and_driver_killed(command, tmp_path, home):
    chance = random.Random(7)
    whole = [*command, "--trials", str(TRIALS), "--workers", "3"]
    driver = Forked(["cse_cli", *whole], tmp_path)
    for done in (2, 4):
        until(lambda least=done: settled() >= least, driver, seconds=400)
        time.sleep(chance.random())
        at_work = []
        until(lambda seen=at_work: bool(seen.extend(training()) or seen), driver)  # between two trials it has none
        os.kill(chance.choice(at_work), signal.SIGKILL)
    until(lambda: settled() >= 6, driver, seconds=400)
    time.sleep(chance.random())
    workers = below(driver)
    driver.kill()
    driver.wait(30)
    before = {trial.number: trial for trial in studies.settled(found())}
    again = Forked(["cse_cli", *whole], tmp_path)
    code, _, said = ended(again, 900)
    assert code == 0, said
    assert driver.stderr.read().count("its process was ended by SIGKILL") == 2
    assert not [worker for worker in workers if worker.is_running()]

    trials = found()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * TRIALS
    assert len({tuple(trial.params.items()) for trial in trials}) == TRIALS
    assert all(trials[number].value == one.value for number, one in before.items())
    client = open_store().client
    finished = [run for run in list_runs() if run.status == "FINISHED" and "cse.trial" in run.tags]
    assert sorted(int(run.tags["cse.trial"]) for run in finished) == list(range(TRIALS))
    assert {run.run_id for run in finished} == {trial.user_attrs["run"] for trial in trials}
    trained = {run.run_id for run in list_runs() if points(client, run.run_id, "train/loss")}
    assert trained == {run.run_id for run in finished}, "no value is trained twice"
    assert all(is_finished(run.run_id) for run in finished)
    resumed = [line for line in said.splitlines() if "was interrupted; it goes on" in line]
    assert 1 <= len(resumed) <= 3


def test_a_second_driver_is_refused_with_who_the_first_is(command, tmp_path, capsys):
    driver = Forked(["cse_cli", *command, "--trials", "30", "--workers", "2"], tmp_path)
    try:
        until(lambda: bool(found()) and settled() >= 1, driver)
        code, out, err = cse(*command, capsys=capsys)
        assert (code, out) == (2, "")
        assert f"error: search 'search' is being done by process {driver.pid} on {os.uname().nodename} since" in err
        assert "--workers" in err
        assert "running" in cse("tune", "--best", "search", capsys=capsys)[1]
    finally:
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=120)
    assert "interrupted" in cse("tune", "--best", "search", capsys=capsys)[1]
