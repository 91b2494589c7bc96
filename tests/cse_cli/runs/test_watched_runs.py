"""Runs in other processes, watched, followed and stopped; the screen in a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from cse_cli.runs.index import read_run
from cse_cli.runs.live import LiveRun, LiveRuns
from cse_cli.runs.record import LOG, folder_of
from tests.support.forked import Forked
from tests.support.programs import CSE, ended, gone, ranks, running, until
from tests.support.records import recorded
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def no_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing to MLflow: its first start takes longer than these tests."""
    monkeypatch.setenv("CSE_MIRRORS", "none")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=20_000, evaluate_every=0, checkpoint_every=20)


def the_run(past: int = 0) -> LiveRun | None:
    """Return the running or lost run once it is past a step."""
    return next((one for one in LiveRuns().read() if one.step > past), None)


def ask(*arguments: object, folder: Path) -> tuple[int, str, str]:
    return ended(Forked([*CSE, "runs", *arguments], folder))


def test_a_run_is_watched_followed_and_stopped(file: Path, tmp_path: Path) -> None:
    with running(*CSE, "run", file, "--device", "cpu", "--json", folder=tmp_path) as process:
        until(lambda: the_run(past=40) is not None, process)
        run = the_run()
        assert run is not None
        assert (run.pid, run.recipe, run.steps, run.lost) == (process.pid, "small", 20_000, False)
        (document,) = json.loads(ask("ls", "--watch", "--json", folder=tmp_path)[1])["runs"]
        assert document["step"] >= 40
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
    assert LiveRuns().read() == []

    with running(*CSE, "run", "--resume", short, "--device", "cpu", folder=tmp_path) as again:
        until(lambda: "resuming after step" in (folder_of(run.run_id) / LOG).read_text(), again)
        again.kill()
        again.wait(30)
        lost = the_run()
        assert lost is not None
        assert lost.lost
        code, _, err = ask("stop", short, folder=tmp_path)
        assert (code, f"run {short} is not running: LOST" in err) == (2, True)
    assert "resuming after step" in ask("logs", short, folder=tmp_path)[1]
    assert ask("rm", short, "--yes", folder=tmp_path)[0] == 0
    assert LiveRuns().read() == []


def test_a_run_in_two_processes_is_stopped(file: Path, tmp_path: Path) -> None:
    with running(*CSE, "run", file, "--device", "cpu", "--processes", 2, folder=tmp_path) as process:
        until(lambda: the_run(past=20) is not None, process)
        run, both = the_run(), ranks(process)
        assert run is not None
        assert ask("stop", run.run_id, folder=tmp_path)[0] == 0
        code, out, err = ended(process)
        assert gone(list(both.values()))
    assert (code, out) == (1, ""), err
    assert [line for line in err.split("\n") if line.startswith("error:")] == [
        f"error: run {run.run_id[:8]} was stopped by `cse runs stop`"
    ]
    assert "Traceback" not in err
    assert read_run(run.run_id).state == "STOPPED"


@pytest.mark.parametrize("end", [b"q", b"\x03"])
def test_the_screen_ends_with_a_key_and_restores_the_terminal(end: bytes, home: Path) -> None:
    record = recorded(end=None, recipe="small")
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    before = termios.tcgetattr(follower)
    command = [sys.executable, "-m", "cse_cli", "runs", "ls", "--watch"]
    environment = {**os.environ, "TERM": "xterm"}

    def attach() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(follower), os.O_RDWR))  # so that Ctrl-C reaches it

    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, preexec_fn=attach
    ) as process:
        shown = read_until(leader, "q quits")
        assert "\x1b[?1049h" in shown  # a screen of its own
        assert "1 run running" in shown
        record.end("stopped")
        read_until(leader, "0 runs running")
        os.write(leader, end)
        shown = read_until(leader, "\x1b[?1049l")
        assert process.wait(30) == 0
    assert termios.tcgetattr(follower) == before
    assert "Traceback" not in shown


def read_until(leader: int, text: str) -> str:
    """Return what a terminal shows, up to a text."""
    shown, last = "", time.monotonic() + 60
    while text not in shown and time.monotonic() < last:
        if select.select([leader], [], [], 1.0)[0]:
            shown += os.read(leader, 4096).decode(errors="replace")
    assert text in shown
    return shown
