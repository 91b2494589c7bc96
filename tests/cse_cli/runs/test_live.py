"""`cse runs ls --watch`: how far running runs are, read from their events, logs and locks."""

from __future__ import annotations

import io
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cse_cli.runs import live
from cse_cli.runs.live import LiveRun, LiveRuns, last_line
from cse_cli.runs.record import RunRecord
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass only when a test adds to it."""
    now = [time.time()]
    monkeypatch.setattr("cse_cli.runs.events.time.time", lambda: now[0])
    return now


@pytest.fixture
def running(clock: list[float]) -> RunRecord:
    """Return a run on a device that has done 1,200 of 2,000 steps at 10 steps a second."""
    record = recorded(end=None, recipe="mini/simcse_en", seed=3)
    record.started(0, 2000, "cuda:1 (NVIDIA H100)")
    for step in range(0, 1201, 100):
        clock[0] += 10
        record.metrics({"train/loss": 1.0}, step)
    record.evaluated(1000, {"dev.spearman": 70.127, "dev.pearson": 1.0}, True)
    (record.path / "log.txt").write_text("2026-11-23 09:30:00    first\n2026-11-23 09:30:10    step 1200/2000\n")
    return record


def test_a_running_run_shows_how_far_it_is(running: RunRecord, clock: list[float]) -> None:
    recorded(result())
    recorded(end="failed")
    (run,) = LiveRuns().read()
    assert (run.run_id, run.recipe, run.seed, run.lost) == (running.run_id, "mini/simcse_en", 3, False)
    assert (run.host, run.pid, run.device) == (socket.gethostname(), os.getpid(), "cuda:1 (NVIDIA H100)")
    assert (run.step, run.steps, run.metric, run.dev) == (1000, 2000, "dev.spearman", 70.127)
    assert run.last_line == "step 1200/2000"
    assert run.updated == clock[0]
    running.metrics({"train/loss": 1.0}, 1200)
    assert LiveRuns().read()[0].seconds_left == pytest.approx(80.0)


def test_the_rate_is_that_of_recent_steps(running: RunRecord, clock: list[float]) -> None:
    for step in range(1210, 1210 + 10 * live._RECENT_STEPS, 10):
        clock[0] += 0.1
        running.metrics({"train/loss": 1.0}, step)
    (run,) = LiveRuns().read()
    assert run.seconds_left == pytest.approx((2000 - run.step) / 100)


def test_each_read_has_what_was_recorded_since(running: RunRecord) -> None:
    live = LiveRuns()
    assert live.read()[0].step == 1000
    running.metrics({"train/loss": 1.0}, 1300)
    assert live.read()[0].step == 1300
    new = recorded(end=None, recipe="new")
    assert [run.recipe for run in live.read()] == ["new", "mini/simcse_en"]
    new.end("finished")
    assert [run.recipe for run in live.read()] == ["mini/simcse_en"]


def test_a_resumed_run_shows_its_step_and_no_old_rate(running: RunRecord) -> None:
    live = LiveRuns()
    running.end("stopped")
    assert live.read() == []
    from cse_cli.runs.claim import Claimed, claim_run

    again = claim_run(running.run_id)
    assert isinstance(again, Claimed)
    again.record.started(400, 2000, "cpu")
    (run,) = live.read()
    assert (run.step, run.device, run.seconds_left) == (400, "cpu", None)
    again.record.end("finished")
    assert live.read() == []


def test_a_lost_run_is_shown_for_a_day(running: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    running.close()
    assert [run.lost for run in LiveRuns().read()] == [True]
    later = time.time() + 25 * 3600
    monkeypatch.setattr("cse_cli.runs.live.time.time", lambda: later)
    assert LiveRuns().read() == []


def test_a_damaged_run_does_not_end_the_screen(running: RunRecord, home: Path) -> None:
    (recorded(end=None).path / "run.toml").write_text("x")
    (home / "runs/empty").mkdir()
    assert [run.run_id for run in LiveRuns().read()] == [running.run_id]


def test_the_last_line_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert last_line(log) == ""
    log.write_text("2026-11-23 09:30:00  x\n" * 10_000 + "2026-11-23 09:30:00    the last ä\n", encoding="utf-8")
    assert last_line(log) == "the last ä"


# --- views ------------------------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_table(runs: Runs, running: RunRecord) -> None:
    code, out, err = runs("ls", "--watch")
    head, line = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert head == ["run", "recipe", "seed", "place", "step", "dev", "left", "last line"]
    place = f"{socket.gethostname().partition('.')[0]} cuda:1"
    assert line[:6] == [running.run_id, "mini/simcse_en", "3", place, "1,000/2,000", "70.13"]
    assert line[-1] == "step 1200/2000"


def test_a_program_gets_one_document(runs: Runs, running: RunRecord) -> None:
    document = json.loads(runs("ls", "--watch", "--json")[1])
    (run,) = document["runs"]
    assert document["schema_version"] == 2
    assert (run["run_id"], run["lost"], run["pid"], run["dev"]) == (running.run_id, False, os.getpid(), 70.127)


def test_nothing_is_running(runs: Runs, home: Path) -> None:
    assert runs("ls", "--watch") == (0, "\t".join(live._COLUMNS) + "\n", "no active runs\n")
    assert json.loads(runs("ls", "--watch", "--json")[1]) == {"schema_version": 2, "runs": []}
    assert not home.exists()


def one(**changes: object) -> LiveRun:
    plain = {
        "run_id": "aaaa1111bbbb", "recipe": "mini/simcse_en", "seed": 3, "host": "gpu-node-07.cluster.example.org",
        "pid": 1, "device": "cuda:1 (NVIDIA H100)", "started": 0.0, "updated": time.time(), "step": 1200,
        "steps": 2000, "metric": "dev.spearman", "dev": 70.127, "seconds_left": 90.0, "last_line": "", "lost": False,
    }  # fmt: skip
    return LiveRun(**{**plain, **changes})  # type: ignore[arg-type]


def screen(found: list[LiveRun], height: int = 24, width: int = 80) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=width, height=height).print(live.live_screen(found, height))
    return written.getvalue().rstrip("\n").split("\n")


def test_a_screen_of_80_columns_has_every_run_and_its_last_line() -> None:
    long = "step 120,000/2,000,000  loss 0.0512  dev 70.13  1,234 sentences/s  172,800 s left [b]"
    lines = screen([one(last_line=long), replace(one(), run_id="bbbb2222", lost=True)])
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("1 run running, 1 lost · ")
    assert lines[1].split() == ["run", "recipe", "seed", "place", "step", "dev", "left"]
    assert " ".join(lines[2].split()) == "aaaa1111 mini/simcse_en 3 gpu-node-07 cuda:1 1,200/2,000 70.13 90 s"
    assert lines[3].endswith("lost")
    assert lines[5].startswith("aaaa1111  step 120,000/2,000,000  loss")
    assert lines[5].endswith("…")


def test_a_low_screen_counts_the_rest() -> None:
    lines = screen([one(run_id=f"{number}aaa1111") for number in range(9)], height=8)
    assert len(lines) <= 8
    assert lines[-1] == "and 5 more"


def test_a_silent_run_is_marked() -> None:
    assert screen([one(updated=time.time() - 12 * 60)])[2].endswith("silent 12 min")


def test_an_empty_screen() -> None:
    assert screen([])[0].startswith("0 runs running · ")
