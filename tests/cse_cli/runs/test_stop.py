"""Runs are stopped and their logs followed from another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.runs import control, details
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs, read_run
from tests.cse_cli.runs.conftest import Runs
from tests.support.forked import Forked
from tests.support.programs import CSE, ended, gone, ranks, running, until
from tests.support.records import recorded, result
from tests.support.shrunken import recipe, small


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

    monkeypatch.setattr(control.time, "sleep", later)
    code, out, _ = runs("stop", "one", "two")
    assert (code, out) == (0, f"{one.run_id[:8]} one: stopped\n{two.run_id[:8]} two: finished\n")


def test_waiting_has_an_end(runs: Runs, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    monkeypatch.setattr(control.wait_until_stopped, "__defaults__", (0.0,))
    code, out, err = runs("stop", "one")
    assert (code, out) == (1, "")
    assert f"still running after 0 s: {run.run_id[:8]} one" in err
    assert stops(home) == {run.run_id}


# --- logs -------------------------------------------------------------------------------------------------------------


def words(out: str) -> list[str]:
    """Return the events of a log without their times and the place of the start."""
    return [line[21:].partition(" on ")[0] for line in out.splitlines()]


def test_following_ends_with_the_run_after_its_last_events(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    monkeypatch.setattr(details.time, "sleep", lambda _seconds: run.end("finished"))
    code, out, _ = runs("logs", "one", "-f")
    assert (code, words(out)) == (0, ["started", "finished"])


def test_following_ends_with_ctrl_c(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(end=None, name="one")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(details.time, "sleep", interrupt)
    code, out, _ = runs("logs", "one", "--follow")
    assert (code, words(out)) == (0, ["started"])


# --- a real run -------------------------------------------------------------------------------------------------------


# Runs in other processes, followed and stopped.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=20_000, evaluate_every=0, checkpoint_every=20)


def the_run(past: int) -> RecordedRun | None:
    """Return the run once it is past a step."""
    return next((one for one in all_runs() if one.progress[0] > past), None)


def ask(*arguments: object, folder: Path) -> tuple[int, str, str]:
    return ended(Forked([*CSE, "runs", *arguments], folder))


@pytest.mark.process
def test_a_run_is_followed_and_stopped(file: Path, tmp_path: Path) -> None:
    with running(*CSE, "run", file, "--device", "cpu", "--json", folder=tmp_path) as process:
        until(lambda: the_run(past=40) is not None, process)
        (run,) = all_runs()
        assert (run.about.recipe, run.state, run.progress[1]) == ("small", "RUNNING", 20_000)
        assert run.host.startswith(f"process {process.pid} on ")
        short = run.run_id[:8]
        follower = Forked([*CSE, "runs", "logs", short, "-f"], tmp_path)
        code, out, err = ask("stop", short, folder=tmp_path)
        assert (code, out) == (0, f"{short} small seed 3: stopped\n"), err
        code, out, err = ended(process)
    assert (code, out) == (1, ""), err
    assert f"error: run {short} was stopped by `cse runs stop`" in err
    assert f"cse run --resume {short}" in err.rstrip().split("\n")[-1]
    assert read_run(run.run_id).state == "STOPPED"
    code, out, _ = ended(follower)
    assert code == 0
    assert out.rstrip().split("\n")[-1].endswith(f"cse run --resume {short}")

    with running(*CSE, "run", "--resume", short, "--device", "cpu", folder=tmp_path) as again:
        until(lambda: len(read_history(run.about.path).starts) == 2, again)
        again.kill()
        again.wait(30)
        assert read_run(run.run_id).state == "LOST"
        code, _, err = ask("stop", short, folder=tmp_path)
        assert (code, f"run {short} is not running: LOST" in err) == (2, True)
    assert "resuming after step" in ask("logs", short, folder=tmp_path)[1]
    assert ask("rm", short, "--yes", folder=tmp_path)[0] == 0
    assert all_runs() == []


@pytest.mark.process
def test_a_run_in_two_processes_is_stopped(file: Path, tmp_path: Path) -> None:
    with running(*CSE, "run", file, "--device", "cpu", "--processes", 2, folder=tmp_path) as process:
        until(lambda: the_run(past=20) is not None, process)
        (run,), both = all_runs(), ranks(process)
        assert ask("stop", run.run_id, folder=tmp_path)[0] == 0
        code, out, err = ended(process)
        assert gone(list(both.values()))
    assert (code, out) == (1, ""), err
    assert [line for line in err.split("\n") if line.startswith("error:")] == [
        f"error: run {run.run_id[:8]} was stopped by `cse runs stop`"
    ]
    assert "Traceback" not in err
    assert read_run(run.run_id).state == "STOPPED"
