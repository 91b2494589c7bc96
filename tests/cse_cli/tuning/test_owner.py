"""Several processes on one search: ownership of trials, and trials that a killed process leaves."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from optuna.trial import TrialState

from cse_cli.runs.claim import BusyError
from cse_cli.runs.index import read_run
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import lock_of
from cse_cli.tuning import driver as drivers
from cse_cli.tuning import owner as owners
from cse_cli.tuning import samplers
from cse_cli.tuning import study as studies
from cse_cli.tuning.owner import OWNER, Owner, ownership
from cse_cli.tuning.results import read_search
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import load_study, open_study
from tests.cse_cli.tuning.fake import BATCHES, SCHEDULES, config, drive, good, number, parameter, raising, trials
from tests.support.records import recorded

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Poll the trials of other processes often."""
    monkeypatch.setattr(drivers, "POLL_SECONDS", 0.02)


def together(asked, count=4, score=good):
    """Search with several drivers at once, and return the numbers of the trials that they did."""
    with ThreadPoolExecutor(count) as pool:
        found = [pool.submit(drive, asked, score) for _ in range(count)]
        return sorted(number(job) for one in found for job in one.result()[2].jobs)


def slow(job, observer):
    time.sleep(0.01)
    return good(job, observer)


@pytest.mark.parametrize(
    ("sampler", "parameters", "budget"),
    [("random", (parameter(),), 12), ("random", (BATCHES, SCHEDULES), 40), ("grid", (BATCHES, SCHEDULES), 40)],
)
def test_four_processes_try_the_same_values_as_one(tmp_path, sampler, parameters, budget):
    both = []
    for name, count in (("one", 1), ("four", 4)):
        storage = f"sqlite:///{tmp_path}/{name}.db"
        asked = config(tmp_path, trials=budget, sampler=sampler, parameters=parameters, storage=storage)
        did = together(asked, count, slow)
        found = trials(asked)
        assert did == [studies.number_of(trial) for trial in studies.settled(found)] == list(range(len(did)))
        assert all(trial.state.is_finished() for trial in found)
        both.append([(trial.number, trial.params, trial.value) for trial in found])
    assert both[0] == both[1]
    assert len([value for _, _, value in both[0] if value is not None]) == min(budget, 12 if budget == 12 else 8)


def begun_elsewhere(asked, lock=True):
    """Return a trial that another process has begun, and the lock that it holds."""
    study = open_study(asked)
    other = Owner(study, address(asked.storage, asked.name))
    if lock:
        other.__enter__()
    trial = study.ask()
    other.sign(trial)
    space = samplers.distributions(asked.parameters)
    for name in space:
        samplers.suggest(trial, name, space[name])
    return trial, other


def test_a_held_trial_is_taken_over_after_its_process_ends(tmp_path):
    asked = config(tmp_path, trials=3)
    trial, other = begun_elsewhere(asked)
    done = []
    searching = threading.Thread(target=lambda: done.append(drive(asked)[2]))
    searching.start()
    until = time.monotonic() + 60
    while len(studies.settled(trials(asked))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    assert not done, "it must wait for the trial of the other process"
    assert read_search(load_study(None, "search")).trials[trial.number].state == "running"
    other.__exit__(KeyboardInterrupt)
    searching.join(60)
    assert sorted(map(number, done[0].jobs)) == [0, 1, 2]
    assert trials(asked)[trial.number].params == trial.params
    assert [one.state for one in trials(asked)] == [TrialState.COMPLETE] * 3


def test_a_trial_of_another_state_directory_is_untouched(tmp_path):
    asked = config(tmp_path, trials=3, storage=f"sqlite:///{tmp_path}/shared.db")
    trial, _ = begun_elsewhere(asked, lock=False)
    ending, _, executor = drive(asked)
    assert (ending, sorted(map(number, executor.jobs))) == ("budget", [1, 2])
    assert trials(asked)[trial.number].state == TrialState.RUNNING
    search = read_search(load_study(asked.storage, "search"), asked.storage)
    assert search.trials[trial.number].state == "running"


def test_ownership(tmp_path, monkeypatch):
    here, shared = config(tmp_path), config(tmp_path, storage=f"sqlite:///{tmp_path}/shared.db")
    found = {}
    for asked in (here, shared):
        trial, other = begun_elsewhere(asked)
        place = address(asked.storage, asked.name)

        def state(place=place, asked=asked):
            return ownership(trials(asked)[0], place, asked.name)

        states = [state()]
        other.__exit__(KeyboardInterrupt)
        states.append(state())
        (place.locks(asked.name) / trial.user_attrs[OWNER]).unlink()
        found[asked.storage] = [*states, state()]
    assert found == {None: ["held", "left", "left"], shared.storage: ["held", "left", "elsewhere"]}


def test_a_trial_that_was_never_signed(tmp_path, monkeypatch):
    asked = config(tmp_path, storage=f"sqlite:///{tmp_path}/shared.db")
    open_study(asked).ask()
    (trial,), place = trials(asked), address(asked.storage, asked.name)
    assert ownership(trial, place, asked.name) == "elsewhere"
    monkeypatch.setattr(owners, "_SIGNING_SECONDS", 0.0)
    assert ownership(trial, place, asked.name) == "left"


def test_a_left_trial_waits_for_its_worker_process(tmp_path):
    asked = config(tmp_path, trials=2)
    with pytest.raises(KeyboardInterrupt):
        drive(asked, raising(KeyboardInterrupt(), 1))
    left = trials(asked)[1].user_attrs["runs"]["42"]
    child = FileLock(lock_of(left))
    assert child.acquire()
    timer = threading.Timer(0.5, child.release)
    timer.start()
    began = time.monotonic()
    _, _, executor = drive(asked)
    assert time.monotonic() - began > 0.4
    assert [job.resume for job in executor.jobs] == [left]


def test_a_run_that_another_process_has_just_claimed(tmp_path):
    asked, busy = config(tmp_path, trials=2), [True, True]
    other = recorded(name="other", end="stopped")

    def score(job, observer):
        if busy:
            busy.pop()
            raise BusyError(read_run(other.run_id))
        return good(job, observer)

    _, driver, executor = drive(asked, score)
    assert (driver.ran, list(map(number, executor.jobs))) == (2, [0, 0, 0, 1])
    assert studies.counts(trials(asked)) == {"complete": 2, "pruned": 0, "failed": 0}


def test_lock_files_of_ended_processes_are_deleted(tmp_path):
    asked = config(tmp_path, trials=2)
    begun_elsewhere(asked)[1].__exit__(KeyboardInterrupt)
    drive(asked)
    assert [path.name for path in address(None, "search").locks("search").iterdir()] == ["lock"]
