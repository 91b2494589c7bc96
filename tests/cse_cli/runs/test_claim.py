"""Who does a run: one process only, and none if it is finished."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from cse_cli.core.identity import Identity
from cse_cli.runs.claim import BusyError, Claimed, claim, claim_run, open_run
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import About, read_about
from tests.support.errors import refuses
from tests.support.records import recorded, result

IDENTITY = Identity(settings="a", text="t")


def about(seed: int = 1, identity: Identity = IDENTITY, **more: object) -> About:
    return About(name="x", group="g", recipe="r", seed=seed, identity=identity, **more)  # type: ignore[arg-type]


def claimed_run(about: About, *, resumed: bool, again: bool = False) -> str:
    """Claim a run that is not done, end it, and return its ID."""
    claimed = claim(about, again=again)
    assert isinstance(claimed, Claimed)
    record = open_run(claimed.run_id)
    assert bool(read_history(record.path).starts) == resumed
    record.started()
    record.end("finished")
    claimed.lock.release()
    return claimed.run_id


def test_a_new_run_is_claimed_and_no_other_process_gets_it() -> None:
    claimed = claim(about())
    assert isinstance(claimed, Claimed)
    for again in (lambda: claim(about()), lambda: claim_run(claimed.run_id)):
        with pytest.raises(BusyError) as busy:
            again()
        assert busy.value.run.run_id == claimed.run_id
    claimed.lock.release()
    assert isinstance(claim(about()), Claimed)


def test_a_run_whose_worker_outlives_its_driver_is_busy() -> None:
    claimed = claim(about())
    assert isinstance(claimed, Claimed)
    record = open_run(claimed.run_id)
    claimed.lock.release()
    for again in (lambda: claim(about()), lambda: open_run(claimed.run_id)):
        with refuses("runs.busy", claimed.run_id[:8]):
            again()
    record.close()
    assert isinstance(claim(about()), Claimed)


@pytest.mark.parametrize(
    "other",
    [about(2), about(identity=Identity(settings="a", text="u")), about(search="s", trial=0)],
    ids=["seed", "text", "trial"],
)
def test_another_experiment_seed_or_trial_is_another_run(other: About) -> None:
    recorded(result(identity=IDENTITY))
    claimed_run(other, resumed=False)


def test_a_finished_run_is_done_unless_asked_for_again() -> None:
    record = recorded(result(identity=IDENTITY))
    done = claim(about())
    assert isinstance(done, RecordedRun)
    assert done.run_id == record.run_id
    assert isinstance(claim_run(record.run_id), RecordedRun)
    assert claimed_run(about(), resumed=False, again=True) != record.run_id


@pytest.mark.parametrize("end", ["failed", "stopped", None])
def test_an_unfinished_run_is_resumed(end: str | None) -> None:
    record = recorded(end=end, **dict(about()))
    record.close()
    assert claimed_run(about(), resumed=True) == record.run_id


def test_a_trial_with_a_new_number_continues_its_run() -> None:
    record = recorded(end="stopped", **dict(about(search="s", trial=3)))
    assert claimed_run(about(search="s", trial=5), resumed=True) == record.run_id
    assert read_about(record.run_id).trial == 3


def test_a_run_that_finishes_while_it_is_claimed_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(None, None, **dict(about()))

    def read_then_end() -> list[object]:
        found = all_runs()
        record.file("result.json", result(identity=IDENTITY).to_json())
        record.end("finished")
        return found  # type: ignore[return-value]

    monkeypatch.setattr("cse_cli.runs.claim.all_runs", read_then_end)
    assert isinstance(claim(about()), RecordedRun)


def test_a_finished_run_without_a_result_is_done_again() -> None:
    record = recorded(result(identity=IDENTITY))
    (record.path / "result.json").write_text("{}")
    with refuses("runs.not_resumable", "result.json") as caught:
        claim_run(record.run_id)
    assert str(record.path / "recipe.toml") in str(caught.value.next_action)
    assert claimed_run(about(), resumed=False) != record.run_id


def test_an_imported_run_counts_as_done() -> None:
    recorded(result(identity=IDENTITY), pulled="archive a.zip")
    assert isinstance(claim(about()), RecordedRun)


def _claim_all(seeds: int, barrier: object, hold: bool) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    for seed in range(seeds):
        try:
            claimed = claim(about(seed))
        except BusyError:
            continue
        if isinstance(claimed, Claimed):
            record = open_run(claimed.run_id)
            record.started()
            if not hold:
                record.file("result.json", result(seed=seed, identity=IDENTITY).to_json())
                record.end("finished")
    if hold:
        time.sleep(60)


@pytest.mark.process
def test_two_processes_never_claim_one_run(home: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_claim_all, args=(12, barrier, False)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(run.about.seed for run in all_runs()) == list(range(12))
    assert {run.state for run in all_runs()} == {"FINISHED"}


@pytest.mark.process
def test_a_killed_process_leaves_its_run_to_the_next(home: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_claim_all, args=(1, context.Barrier(1), True))
    process.start()
    until = time.monotonic() + 30
    while not any(run.started for run in all_runs()) and time.monotonic() < until:
        time.sleep(0.02)
    with refuses("runs.busy"):
        claim(about(0))
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(30)
    assert [run.state for run in all_runs()] == ["LOST"]
    claimed_run(about(0), resumed=True)
