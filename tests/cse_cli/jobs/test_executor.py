"""The executors: what becomes of a job whose run fails, is ended by its observer, hangs, or loses its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import psutil
import pytest
from cse_cli.core.events import Collapsed, Pruned, RunInfo, SilentObserver
from cse_cli.jobs.executor import STALL_SECONDS, Executor, LocalExecutor, SerialExecutor

from cse_cli.core.results import Result
from cse_cli.jobs.child import send_through
from cse_cli.recipe.load import load
from cse_cli.runs.index import read_run
from cse_cli.runs.record import log_of
from cse_cli.training.build import Job
from registry.errors import CseError, MissingError, RunFailedError
from tests.support.programs import gone, runs
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.slow

Act = Callable[[int], None]
"""Is given the step whose scores are told."""


class Watch(SilentObserver):
    """Keeps what it hears, and acts on it."""

    def __init__(self, act: Act | None = None) -> None:
        self.run_ids: list[str] = []
        self.done: list[int] = []
        self.steps: list[int] = []
        self.warnings: list[str] = []
        self._act = act

    def started(self, run: RunInfo) -> None:
        self.run_ids.append(run.run_id)
        self.done.append(run.done)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        self.steps.append(step)
        if self._act is not None:
            self._act(step)

    def warned(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def file(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return recipe(tmp_path, small(tmp_path), steps=40, evaluate_every=10, checkpoint_every=10)


def job(file: Path, *overrides: str, seed: int = 3) -> Job:
    """Return a job that trains also if the same run is finished."""
    return Job(load(str(file), [f"train.seed={seed}", *overrides]), seed, "cpu", again=True)


def ended(executor: Executor, future: Future[Result]) -> Future[Result]:
    while not future.done():
        executor.wait()
    return future


def processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if runs(one, "cse_cli.jobs.worker")]


def kill_worker(times: int, at: int = 20) -> Act:
    """Kill the only worker so many times, each when step `at` is scored."""
    left = [times]

    def act(step: int) -> None:
        if step == at and left[0]:
            left[0] -= 1
            (worker,) = processes()
            os.kill(worker.pid, signal.SIGKILL)

    return act


def test_futures_have_results_errors_and_pruned_runs(file, few_pairs, undrawn):
    def prune(step: int) -> None:
        if step == 20:
            raise Pruned("enough")

    with SerialExecutor() as executor:
        good = executor.submit(job(file), Watch())
        assert good.result().steps == 40
        assert isinstance(executor.submit(job(file, "encoders.online.model=/no"), Watch()).exception(), MissingError)
        watch = Watch(prune)
        assert isinstance(executor.submit(job(file), watch).exception(), Pruned)
    assert watch.steps == [0, 10, 20]


def test_a_result_that_was_recorded_and_not_sent_counts(file, few_pairs, undrawn):
    with SerialExecutor() as executor:
        result = executor.submit(job(file), Watch()).result()
    pool = LocalExecutor(["cpu"])
    future = pool.submit(job(file), Watch())
    submission = pool._queue.pop()
    submission.run_id = result.run_id
    pool.retry(submission, "was killed by SIGKILL")
    assert future.result(0) == result
    assert not pool._queue


@pytest.mark.process
class TestLocalExecutor:
    def test_the_observer_ends_a_run_and_the_process_takes_the_next(self, file):
        def prune(step: int) -> None:
            if step == 20:
                raise Pruned("enough")

        with LocalExecutor(["cpu"]) as executor:
            watch = Watch(prune)
            pruned = ended(executor, executor.submit(job(file), watch)).exception()
            assert isinstance(pruned, Pruned)
            assert watch.steps == [0, 10, 20]
            assert read_run(watch.run_ids[0]).state == "PRUNED"
            before = [one.pid for one in processes()]
            failed = ended(executor, executor.submit(job(file, "encoders.online.model=/no"), Watch())).exception()
            assert isinstance(failed, MissingError)
            assert "/no" in failed.message
            good = ended(executor, executor.submit(job(file), Watch())).result()
            assert [one.pid for one in processes()] == before
        assert gone(processes())
        with SerialExecutor() as executor:
            alone = executor.submit(job(file), Watch()).result()
        assert (good.last_state, good.scores, good.curve) == (alone.last_state, alone.scores, alone.curve)

    def test_a_killed_process_is_replaced_and_its_run_goes_on(self, file):
        watch = Watch(kill_worker(2))
        with LocalExecutor(["cpu"]) as executor:
            result = ended(executor, executor.submit(job(file), watch)).result()
        assert len(set(watch.run_ids)) == 1
        assert watch.done == [0, 10, 10]
        died = "small seed 3: its process was killed by SIGKILL (possibly out of memory)"
        said = f"{died}; resuming run {watch.run_ids[0][:8]} from its last checkpoint"
        assert [text for text in watch.warnings if "process" in text] == [said] * 2
        with SerialExecutor() as executor:
            alone = executor.submit(job(file), Watch()).result()
        assert (result.last_state, result.scores, result.curve) == (alone.last_state, alone.scores, alone.curve)

    @pytest.mark.exhaustive
    def test_a_killed_process_whose_own_children_live_is_noticed(self, file, monkeypatch):
        """As where it was tokenizing in several processes: they inherit its end of the pipe."""
        held: list[int] = []

        def pipe() -> tuple[Connection, Connection]:
            ours, theirs = Pipe()
            held.append(os.dup(theirs.fileno()))
            return ours, theirs

        monkeypatch.setattr("cse_cli.jobs.child.connection.Pipe", pipe)
        watch = Watch(kill_worker(1))
        with LocalExecutor(["cpu"]) as executor:
            assert ended(executor, executor.submit(job(file), watch)).result().steps == 40
        assert watch.done == [0, 10]
        for descriptor in held:
            os.close(descriptor)

    @pytest.mark.exhaustive
    def test_a_process_that_dies_each_time_fails_its_job_alone(self, file, monkeypatch):
        monkeypatch.setattr("cse_cli.jobs.executor.MOST_RETRIES", 1)
        watch = Watch(kill_worker(9))
        with LocalExecutor(["cpu"]) as executor:
            failed, good = executor.submit(job(file), watch), executor.submit(job(file, seed=4), Watch())
            error = ended(executor, failed).exception()
            assert isinstance(error, RunFailedError)
            assert error.code == "jobs.process_died"
            assert "2 processes died, the last one was killed by SIGKILL" in error.message
            assert str(log_of(watch.run_ids[0])) in error.message
            assert error.next_action == f"resume it: cse run --resume {watch.run_ids[0][:8]}"
            assert ended(executor, good).result().seed == 4
        assert read_run(watch.run_ids[0]).state == "LOST"

    @pytest.mark.exhaustive
    def test_a_process_that_hangs_is_killed(self, file):
        hung: list[psutil.Process] = []

        class Patient(Watch):
            def warned(self, text: str) -> None:
                super().warned(text)
                executor._stall_timeout = STALL_SECONDS  # the next process may need a minute to start

        def hang(step: int) -> None:
            if step == 20 and not hung:
                hung.extend(processes())
                hung[0].suspend()
                executor._stall_timeout = 2.0

        watch = Patient(hang)
        with LocalExecutor(["cpu"]) as executor:
            assert ended(executor, executor.submit(job(file), watch)).result().steps == 40
        assert watch.done == [0, 10]
        (told,) = (text for text in watch.warnings if "process" in text)
        assert "its process was killed: no progress report for 2 s; resuming run " in told

    def test_an_error_of_ours_is_told_with_its_log(self, file):
        broken = job(file)
        object.__setattr__(broken, "seed", "no number")
        with LocalExecutor(["cpu"]) as executor:
            error = ended(executor, executor.submit(broken, Watch())).exception()
        assert isinstance(error, CseError)
        assert error.exit_code == 1
        assert "Error: " in error.message


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_a_driver_that_exits_before_it_replies_breaks_the_pipe(error):
    class Reset:
        def send(self, call):
            pass

        def recv(self):
            raise error

    with pytest.raises(BrokenPipeError):
        send_through(Reset())(Collapsed("all alike"))


def test_a_run_is_the_same_as_the_first_and_as_the_third_of_its_process(file: Path) -> None:
    def trained(executor: SerialExecutor, seed: int, *, again: bool = False) -> Result:
        return executor.submit(Job(load(str(file)), seed=seed, again=again), SilentObserver()).result()

    several = SerialExecutor()
    trained(several, 1)
    trained(several, 2)
    third, first = trained(several, 0), trained(SerialExecutor(), 0, again=True)
    assert third.run_id != first.run_id
    for part in ("scores", "untrained", "curve", "last_state", "identity"):
        assert getattr(third, part) == getattr(first, part), part
