"""Runs that are finished, running or missing: what `cse run` trains, shows, waits for and plans."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cse_cli.jobs import launch
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.request import Placement
from cse_cli.runs.claim import BusyError, Claimed, claim
from cse_cli.runs.index import all_runs, read_run
from cse_cli.runs.lock import CLAIM, LOCK, FileLock
from cse_cli.runs.plans import plan_of_run
from cse_cli.runs.record import folder_of, read_about
from cse_cli.training import run as running
from cse_cli.training.trainer import Trainer
from tests.cse_cli.jobs.conftest import Run
from tests.support.chosen import these
from tests.support.programs import results
from tests.support.records import only_run, states

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds that are trained from now on."""
    seeds: list[int] = []
    train = Trainer.run

    def noted(self: Trainer) -> None:
        seeds.append(int(read_about(self.record.run_id).seed or 0))
        train(self)

    monkeypatch.setattr(Trainer, "run", noted)
    return seeds


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_finished_seeds_are_shown_and_not_trained(file, run, trained):
    _, first, _ = run(file, "--seeds", "2", "--json")
    code, second, err = run(file, "--seeds", "2", "--json")
    assert (code, second, trained) == (0, first, [0, 1])
    for one in results(first):
        assert f"finished: small seed {one.seed}, run {str(one.run_id)[:8]} of " in err
    assert err.count("--again") == 2
    assert states() == ["FINISHED"] * 2


def test_only_the_missing_seed_is_trained(file, run, trained):
    run(file, "--seeds", "0,2")
    code, out, _ = run(file, "--seeds", "3", "--json")
    assert (code, trained) == (0, [0, 2, 1])
    assert [one.seed for one in results(out)] == [0, 1, 2]
    assert states() == ["FINISHED"] * 3


def test_the_plan_is_recorded_before_the_first_run_starts(file, run, home, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", interrupt)
        assert run(file, "--seeds", "3")[0] == 130
    first = only_run()
    plan = plan_of_run(first.about)
    assert plan is not None
    assert plan.seeds == (0, 1, 2)
    assert first.started is not None
    assert plan.made <= first.about.created <= first.started

    _, out, _ = run(file, "--seeds", "3", "--json")
    assert {one.plan for one in results(out)} == {plan}
    assert len((home / "plans.jsonl").read_text().splitlines()) == 1


def test_processes_that_start_together_have_one_plan(file, run, monkeypatch):
    """Another process described its run before the plan was recorded, and had to wait for the lock of the claims."""
    monkeypatch.setattr(Trainer, "run", interrupt)
    run(file, "--seeds", "2")
    first = only_run().about
    early = first.created - timedelta(seconds=1)
    for run_id, seed, seeds in (("b" * 32, 1, (0, 1)), ("c" * 32, 2, (0, 1, 2))):
        claimed = claim(first.model_copy(update={"run_id": run_id, "seed": seed, "created": early}), seeds=seeds)
        assert isinstance(claimed, Claimed)
        claimed.lock.release()
    assert plan_of_run(read_run("b" * 32).about) == plan_of_run(first)
    assert plan_of_run(read_run("c" * 32).about).seeds == (0, 1, 2)


def test_one_seed_is_no_plan_and_more_seeds_are_another(file, run):
    run(file)
    assert plan_of_run(only_run().about) is None
    run(file, "--seeds", "2")
    run(file, "--seeds", "3")
    plans = {each.about.seed: plan_of_run(each.about) for each in all_runs()}
    assert [plans[seed].seeds for seed in range(3)] == [(0, 1), (0, 1), (0, 1, 2)]
    assert plans[2].made > plans[0].made == plans[1].made


def test_a_seed_that_is_repeated_alone_belongs_to_the_plan_and_a_damaged_line_is_no_plan(file, run, home):
    _, out, _ = run(file, "--seeds", "0,2", "--json")
    run(file, "--seed", "2", "--again")
    first, *_ = results(out)
    assert {plan_of_run(each.about) for each in all_runs()} == {first.plan}
    with (home / "plans.jsonl").open("a") as lines:
        lines.write('{"experiment": 3}\n')
    assert plan_of_run(all_runs()[-1].about) == first.plan
    (home / "plans.jsonl").write_text("x")
    assert {plan_of_run(each.about) for each in all_runs()} == {None}


def test_the_seeds_of_each_experiment_are_a_plan_of_their_own(file, run):
    run(file, "--seeds", "2")
    _, out, _ = run(file, "--seeds", "2", "--set", "train.steps=2", "--json")
    made = {plan_of_run(each.about).made for each in all_runs()}
    assert len(made) == 2
    assert {one.plan.made for one in results(out)} < made


# Runs of other processes.


@pytest.fixture
def stopped(file: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the ID of a run that was stopped."""
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", interrupt)
        run(file)
    return only_run().run_id


@pytest.fixture
def held(stopped: str) -> FileLock:
    """Hold the lock of the stopped run, as a process does that is about to resume it."""
    lock = FileLock(folder_of(stopped) / LOCK)
    assert lock.acquire()
    return lock


def test_resume_of_a_running_run_names_its_process(stopped, held, run):
    code, out, err = run("--resume", stopped)
    assert (code, out) == (2, "")
    assert f"run {stopped[:8]} (small seed 3) is already running: {read_run(stopped).host}" in err
    assert read_run(stopped).host.startswith("process ")
    assert "Traceback" not in err


def test_a_run_of_another_process_is_awaited_and_taken_over(stopped, held, file, run, trained, monkeypatch):
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            held.release()  # the other process ends without a result

    monkeypatch.setattr(launch, "sleep", sleep)
    code, out, err = run(file, "--json")
    assert (code, waits, trained) == (0, [launch.POLL_SECONDS] * 2, [3])
    assert err.count(f"waiting for small seed 3: run {stopped[:8]} is process ") == 1
    assert [one.run_id for one in results(out)] == [stopped]


def test_other_seeds_are_trained_first(stopped, held, file, run, trained, monkeypatch):
    monkeypatch.setattr(launch, "sleep", lambda _: held.release())
    code, out, _ = run(file, "--seeds", "3,4,5", "--json")
    assert (code, trained) == (0, [4, 5, 3])
    assert [one.seed for one in results(out)] == [3, 4, 5]


def test_another_process_that_is_first_is_awaited(stopped, file, run, trained, monkeypatch):
    """It executes the run after this one has claimed it, as a worker does whose driver was killed."""
    lock, opened = FileLock(folder_of(stopped) / LOCK), vars(running)["open_run"]

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(running, "open_run", opened)
        lock.acquire()
        return opened(*arguments)

    monkeypatch.setattr(running, "open_run", late)
    monkeypatch.setattr(launch, "sleep", lambda _: lock.release())
    code, out, _ = run(file, "--json")
    assert (code, trained) == (0, [3])
    assert [one.run_id for one in results(out)] == [stopped]


@pytest.mark.process
@pytest.mark.parametrize("processes", these([2], [1, 2]))
def test_a_worker_of_a_busy_run_says_so(processes, stopped, held, file):
    """The claim is free, and the run is not."""
    devices = ("cpu",) if processes == 1 else ()
    with Engine(Placement(processes, devices, device="cpu")) as engine:
        (lock := FileLock(folder_of(stopped) / CLAIM)).acquire()
        engine.start(Claimed(stopped, lock, is_new=False), lambda *_: None)
        ends: list[Any] = []
        while not ends:
            ends = engine.ended()
    ((run_id, error),) = ends
    assert run_id == stopped
    assert isinstance(error, BusyError)
    assert (error.run.run_id, error.exit_code) == (stopped, 2)
    assert stopped[:8] in error.message
