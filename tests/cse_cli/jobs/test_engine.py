"""The engine: what becomes of a run that fails, is ended by its search, hangs, or loses its process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from cse_cli.core.results import Result
from cse_cli.jobs import child
from cse_cli.jobs import engine as engines
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job
from cse_cli.jobs.request import Placement
from cse_cli.recipe.load import load
from cse_cli.runs.claim import Claimed
from cse_cli.runs.events import Pruned
from cse_cli.runs.index import all_runs, read_run
from cse_cli.runs.record import request_end
from registry.errors import MissingError, RunFailedError
from tests.support.forked import ForkedWorker
from tests.support.programs import gone
from tests.support.running import Heard
from tests.support.shrunken import recipe, small

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_children")]

HERE, CHILD = Placement(device="cpu"), Placement(devices=("cpu",), device="cpu")

Act = Callable[[str, int], None]
"""Is given the run and the step whose scores are told."""


class Watch(Heard):
    """Keeps what it hears, and acts on scores."""

    def __init__(self, act: Act | None = None) -> None:
        super().__init__()
        self.run_id, self._act = "", act

    def __call__(self, kind: str, data: Mapping[str, Any]) -> None:
        super().__call__(kind, data)
        if kind == "evaluated" and self._act is not None:
            self._act(self.run_id, data["step"])

    def steps(self, kind: str) -> list[int]:
        return [data["step"] for each, data in self.events if each == kind]


@pytest.fixture
def file(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return recipe(tmp_path, small(tmp_path), steps=40, evaluate_every=10, checkpoint_every=10, collapse_cosine=1.0)


def begin(engine: Engine, file: Path, watch: Watch | None = None, *changes: str, seed: int = 3, **of_job: Any) -> str:
    """Start a run, also if the same one is finished, and return its ID."""
    job = Job(load(str(file), [f"train.seed={seed}", *changes]), seed, again=True, **of_job)
    claim = job.claim("cpu")
    assert isinstance(claim, Claimed)
    watch = watch or Watch()
    watch.run_id = claim.run_id
    engine.start(claim, watch)
    return claim.run_id


def begin_trial(engine: Engine, file: Path, watch: Watch | None = None, seed: int = 3) -> str:
    """Start the run of a trial, which waits after each score until it was seen.

    It has two sentences a batch: more would count as collapsed in a random model.
    """
    return begin(engine, file, watch, "train.batch_size=2", seed=seed, search="s", trial=0)


def end(engine: Engine, run_id: str) -> Any:
    """Return the result or error of a run."""
    found: dict[str, Any] = {}
    while run_id not in found:
        found.update(engine.ended())
    return found[run_id]


def workers() -> list[psutil.Process]:
    return [psutil.Process(one.pid) for one in ForkedWorker.started if one.poll() is None]


def kill_worker(times: int, at: int = 20) -> Act:
    """Kill the only worker so many times, each when step `at` is scored."""
    left = [times]

    def act(_: str, step: int) -> None:
        if step == at and left[0]:
            left[0] -= 1
            (worker,) = workers()
            os.kill(worker.pid, signal.SIGKILL)

    return act


def prune(run_id: str, step: int) -> None:
    if step == 20:
        request_end(run_id, "enough")


def equal(one: Result, other: Result) -> bool:
    return all(getattr(one, part) == getattr(other, part) for part in ("last_state", "scores", "untrained", "curve"))


@pytest.mark.parametrize("where", [HERE, pytest.param(CHILD, marks=pytest.mark.process)], ids=["here", "child"])
def test_a_search_ends_the_run_of_a_trial_after_a_score(where, file):
    watch = Watch(prune)
    with Engine(where) as engine:
        pruned = end(engine, begin_trial(engine, file, watch))
    assert isinstance(pruned, Pruned)
    assert str(pruned) == "enough"
    assert watch.steps("evaluated") == [0, 10, 20]
    assert read_run(watch.run_id).state == "PRUNED"


@pytest.mark.parametrize("where", [HERE, pytest.param(CHILD, marks=pytest.mark.process)], ids=["here", "child"])
def test_a_run_that_cannot_start_has_an_error_and_no_record(where, file, monkeypatch):
    claim = Job(load(str(file)), 3).claim("cpu")
    assert isinstance(claim, Claimed)
    text = claim_recipe(claim.run_id).read_text()
    claim_recipe(claim.run_id).write_text(text.replace('\nmodel = "', '\nmodel = "/no'))
    with Engine(where) as engine:
        engine.start(claim, Watch())
        failed = end(engine, claim.run_id)
    assert isinstance(failed, MissingError)
    assert "/no" in failed.message
    assert all_runs() == []


def claim_recipe(run_id: str) -> Path:
    return read_run(run_id).about.path / "recipe.toml"


def test_a_run_is_the_same_as_the_first_and_as_the_third_of_its_process(file):
    with Engine(HERE) as engine:
        for seed in (1, 2):
            end(engine, begin(engine, file, seed=seed))
        third = end(engine, begin(engine, file, seed=0))
    with Engine(HERE) as engine:
        first = end(engine, begin(engine, file, seed=0))
    assert third.run_id != first.run_id
    assert equal(third, first)


@pytest.mark.process
def test_a_killed_process_is_replaced_and_its_run_goes_on(file):
    watch = Watch(kill_worker(2))
    with Engine(CHILD) as engine:
        result = end(engine, begin_trial(engine, file, watch))
    assert gone(workers())
    assert watch.steps("started") == [0, 10, 10]
    died = "small seed 3: its process was killed by SIGKILL (possibly out of memory)"
    said = f"{died}; continuing run {watch.run_id[:8]} from its last checkpoint"
    assert [text for text in watch.warnings if "process" in text] == [said] * 2
    with Engine(HERE) as engine:
        assert equal(result, end(engine, begin_trial(engine, file)))


@pytest.mark.process
@pytest.mark.exhaustive
def test_a_process_that_dies_each_time_fails_its_run_alone(file, monkeypatch):
    monkeypatch.setattr(engines, "MOST_RETRIES", 1)
    watch = Watch(kill_worker(9))
    with Engine(CHILD) as engine:
        error = end(engine, begin_trial(engine, file, watch))
        assert isinstance(error, RunFailedError)
        assert error.code == "jobs.process_died"
        assert "2 processes died, the last one was killed by SIGKILL" in error.message
        assert error.next_action == f"resume it: cse run --resume {watch.run_id[:8]}"
        assert end(engine, begin(engine, file, seed=4)).seed == 4
    assert read_run(watch.run_id).state == "LOST"


@pytest.mark.process
@pytest.mark.exhaustive
def test_a_process_that_hangs_is_killed(file):
    hung: list[psutil.Process] = []

    def hang(_: str, step: int) -> None:
        if step == 20 and not hung:
            hung.extend(workers())
            hung[0].suspend()

    watch = Watch(hang)
    with Engine(Placement(devices=("cpu",), device="cpu", stall_timeout=60.0)) as engine:
        assert end(engine, begin_trial(engine, file, watch)).steps == 40
    assert watch.steps("started") == [0, 10]
    (told,) = (text for text in watch.warnings if "process" in text)
    assert "its process was killed: no progress report for 60 s; continuing run " in told


@pytest.mark.process
def test_an_error_of_ours_has_its_message_and_its_traceback_in_the_log(file, monkeypatch, tmp_path):
    monkeypatch.setattr(child, "subprocess", subprocess)  # a process that imports what a site wants
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'cse_cli.jobs.worker' in ' '.join(sys.orig_argv):\n"
        "    import cse_cli.training.run as run\n"
        "    run.make_result = None\n"
    )
    with Engine(CHILD) as engine:
        error = end(engine, run_id := begin(engine, file))
    assert isinstance(error, RunFailedError)
    assert error.message == "TypeError: 'NoneType' object is not callable"
    assert "Traceback" in (read_run(run_id).about.path / "log.txt").read_text()
