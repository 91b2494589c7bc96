"""Runs in other processes, followed and stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.runs.index import RecordedRun, all_runs, read_run
from cse_cli.runs.record import LOG, folder_of
from tests.support.forked import Forked
from tests.support.programs import CSE, ended, gone, ranks, running, until
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def no_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing to MLflow: its first start takes longer than these tests."""
    monkeypatch.setenv("CSE_MIRRORS", "none")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=20_000, evaluate_every=0, checkpoint_every=20)


def the_run(past: int) -> RecordedRun | None:
    """Return the run once it is past a step."""
    return next((one for one in all_runs() if one.progress[0] > past), None)


def ask(*arguments: object, folder: Path) -> tuple[int, str, str]:
    return ended(Forked([*CSE, "runs", *arguments], folder))


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
        until(lambda: "resuming after step" in (folder_of(run.run_id) / LOG).read_text(), again)
        again.kill()
        again.wait(30)
        assert read_run(run.run_id).state == "LOST"
        code, _, err = ask("stop", short, folder=tmp_path)
        assert (code, f"run {short} is not running: LOST" in err) == (2, True)
    assert "resuming after step" in ask("logs", short, folder=tmp_path)[1]
    assert ask("rm", short, "--yes", folder=tmp_path)[0] == 0
    assert all_runs() == []


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
