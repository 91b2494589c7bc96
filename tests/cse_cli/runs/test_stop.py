"""Runs are stopped and their logs followed from another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.core.events import RunInfo, SilentObserver
from cse_cli.recipe.load import load
from cse_cli.runs import log, stop
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import folder_of
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import StopRequested
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result
from tests.support.shrunken import Small, recipe


def stops(home: Path) -> set[str]:
    return {path.parent.name for path in (home / "runs").glob("*/stop")}


def test_a_request_without_waiting(runs: Runs, home: Path) -> None:
    one, two = recorded(end=None, name="one"), recorded(end=None, name="two")
    code, out, err = runs("stop", one.run_id[:8], "two", "--no-wait")
    assert (code, err) == (0, "")
    assert out == f"{one.run_id[:8]} one: requested to stop\n{two.run_id[:8]} two: requested to stop\n"
    assert stops(home) == {one.run_id, two.run_id}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("finished", "is not running: FINISHED\n  → cse runs show"),
        ("failed", "is not running: FAILED\n  → cse run --resume"),
        (None, "is not running: LOST\n  → cse run --resume"),
    ],
)
def test_what_is_not_running_is_named_and_nothing_stops(runs: Runs, home: Path, end: str | None, message: str) -> None:
    recorded(end=None, name="one")
    recorded(result(), end=end, name="other").close()
    code, out, err = runs("stop", "one", "other")
    assert (code, out, stops(home)) == (2, "", set())
    assert message in err


def test_waiting_prints_how_each_ended(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = recorded(end=None, name="one"), recorded(end=None, name="two")

    def later(_seconds: float) -> None:
        one.end("stopped")
        two.end("finished")

    monkeypatch.setattr(stop.time, "sleep", later)
    code, out, _ = runs("stop", "one", "two")
    assert (code, out) == (0, f"{one.run_id[:8]} one: stopped\n{two.run_id[:8]} two: finished\n")


def test_waiting_has_an_end(runs: Runs, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    monkeypatch.setattr(stop.wait_until_stopped, "__defaults__", (0.0,))
    code, out, err = runs("stop", "one")
    assert (code, out) == (1, "")
    assert f"still running after 0 s: {run.run_id[:8]} one" in err
    assert stops(home) == {run.run_id}


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_log_is_printed_as_it_is(runs: Runs) -> None:
    run = recorded(name="one")
    (run.path / "log.txt").write_text("one [b]\nzwei ä\n", encoding="utf-8")
    assert runs("logs", "one") == (0, "one [b]\nzwei ä\n", "")


def test_following_ends_with_the_run_after_its_last_lines(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    (run.path / "log.txt").write_text("one\n")

    def later(_seconds: float) -> None:
        with (run.path / "log.txt").open("a") as file:
            file.write("finished\n")
        run.end("finished")

    monkeypatch.setattr(stop.time, "sleep", later)
    assert runs("logs", "one", "-f") == (0, "one\nfinished\n", "")


def test_following_ends_with_ctrl_c(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    (run.path / "log.txt").write_text("one\n")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stop.time, "sleep", interrupt)
    assert runs("logs", "one", "--follow") == (0, "one\n", "")


# --- a real run -------------------------------------------------------------------------------------------------------


class Stopper(SilentObserver):
    """Requests its run to stop at a step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.run_id = ""

    def started(self, run: RunInfo) -> None:
        self.run_id = run.run_id

    def stepped(self, step: int, loss: float, rate: float) -> None:
        if step == self.at:
            (folder_of(self.run_id) / "stop").touch()


@pytest.mark.exhaustive
def test_a_stopped_run_resumes_as_if_it_had_not_stopped(
    parts: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_MIRRORS", "none")
    monkeypatch.setattr(log, "LOOK_EVERY", 0.0)
    loaded = load(str(recipe(tmp_path, parts, steps=40, evaluate_every=0, checkpoint_every=10)))
    stopper = Stopper(at=20)
    with pytest.raises(StopRequested) as caught:
        execute(Job(loaded, 3, "cpu"), stopper)
    assert stopper.run_id[:8] in str(caught.value.next_action)
    assert [(run.run_id, run.state) for run in all_runs()] == [(stopper.run_id, "STOPPED")]

    broken = execute(Job(loaded, 3, "cpu", stopper.run_id), SilentObserver())
    whole = execute(Job(loaded, 3, "cpu", again=True), SilentObserver())
    assert (broken.run_id, broken.last_state) == (stopper.run_id, whole.last_state)
    assert whole.run_id != stopper.run_id
    assert broken.scores == whole.scores
    printed = (folder_of(stopper.run_id) / "log.txt").read_text(encoding="utf-8")
    assert "resuming after step" in printed
    assert printed.rstrip().endswith("finished")
    left = {path.name for path in folder_of(stopper.run_id).iterdir()}
    assert {"stop", "checkpoint.pt"}.isdisjoint(left)
