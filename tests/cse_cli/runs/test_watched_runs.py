"""Runs in processes of their own, watched, followed and stopped by other processes; the screen in a real terminal."""

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

from cse_cli.core.run_status import RunStatus, all_statuses
from cse_cli.tracking.store import Store
from tests.cse_cli.jobs.commands import CSE, ended, gone, ranks, running, until
from tests.forked import Forked
from tests.shrunken import recipe, small

pytestmark = pytest.mark.process


@pytest.fixture
def file(tmp_path: Path, store: Store) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=20_000, evaluate_every=0, checkpoint_every=20)


def the_run(past: int = 0) -> RunStatus | None:
    """Return the run at work once it is past a step."""
    return next((one for one in all_statuses() if one.step > past), None)


def ask(*arguments: object, folder: Path) -> tuple[int, str, str]:
    return ended(Forked([*CSE, "runs", *arguments], folder))


def test_a_run_is_watched_followed_and_stopped(file, store, tmp_path):
    with running(*CSE, "run", file, "--device", "cpu", "--json", folder=tmp_path) as process:
        until(lambda: the_run(past=40) is not None, process)
        run = the_run()
        assert (run.pid, run.recipe, run.steps, run.is_gone) == (process.pid, "small", 20_000, False)
        (document,) = json.loads(ask("ls", "--live", "--json", folder=tmp_path)[1])["runs"]
        assert document["step"] >= 40
        follower = Forked([*CSE, "runs", "logs", run.run_id[:8], "-f"], tmp_path)
        code, out, err = ask("stop", run.run_id[:8], folder=tmp_path)
        assert (code, out) == (0, f"{run.run_id[:8]} small seed 3: stopped\n"), err
        code, out, err = ended(process)
    assert (code, out) == (1, ""), err
    said = f"error: run {run.run_id[:8]} was stopped by `cse runs stop`"
    assert err.rstrip().split("\n")[-2:] == [said, f"  → go on with: cse run --resume {run.run_id[:8]}"]
    assert store.client.get_run(run.run_id).info.status == "KILLED"
    code, out, _ = ended(follower)
    assert code == 0
    assert out.rstrip().endswith(f"stopped; go on with: cse run --resume {run.run_id[:8]}")
    assert all_statuses() == []

    with running(*CSE, "run", "--resume", run.run_id[:8], "--device", "cpu", folder=tmp_path) as again:
        until(lambda: the_run(past=run.step) is not None, again)
        again.kill()
        again.wait(30)
        assert the_run().is_gone
        code, _, err = ask("stop", run.run_id[:8], folder=tmp_path)
        assert (code, f"its process {again.pid} is gone" in err) == (2, True)
    assert "going on after step" in ask("logs", run.run_id[:8], folder=tmp_path)[1]
    assert ask("close", run.run_id[:8], folder=tmp_path)[0] == 0
    assert all_statuses() == []


def test_a_run_in_two_processes_is_stopped(file, store, tmp_path):
    with running(*CSE, "run", file, "--device", "cpu", "--processes", 2, folder=tmp_path) as process:
        until(lambda: the_run(past=20) is not None, process)
        run, both = the_run(), ranks(process)
        assert ask("stop", run.run_id, folder=tmp_path)[0] == 0
        code, out, err = ended(process)
        assert gone(list(both.values()))
    assert (code, out) == (1, ""), err
    assert [line for line in err.split("\n") if line.startswith("error:")] == [
        f"error: run {run.run_id[:8]} was stopped by `cse runs stop`"
    ]
    assert "Traceback" not in err
    assert store.client.get_run(run.run_id).info.status == "KILLED"


@pytest.mark.parametrize("end", [b"q", b"\x03"])
def test_the_screen_ends_with_a_key_and_leaves_the_terminal_as_it_was(end, home):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    before = termios.tcgetattr(follower)
    command = [sys.executable, "-m", "cse_cli", "runs", "ls", "--live"]
    environment = {**os.environ, "TERM": "xterm"}

    def attach() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(follower), os.O_RDWR))  # so that Ctrl-C reaches it

    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, preexec_fn=attach
    ) as process:
        shown = read_until(leader, "runs at work")
        assert "\x1b[?1049h" in shown  # a screen of its own
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
