"""What a run keeps in its folder for those who watch it: its lines, its status, and how it hears that it is to stop."""

from __future__ import annotations

import json
import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cse_cli.core import console, run_log
from cse_cli.core.console import Pruned, RunInfo, SilentObserver
from cse_cli.core.run_lock import RunLock
from cse_cli.core.run_log import RunLog
from cse_cli.core.run_status import RunStatus, all_statuses, is_at_work, read_status
from registry.errors import CseError, StopRequested

RUN = RunInfo(
    recipe="[red]x", title="A [bold]title", seed=3, device="cpu (2 threads)", precision="fp32",
    run_id="abc123def456", home="/home/[me]/cse", steps=100, done=0, sentences=58_763,
)  # fmt: skip


class Heard(SilentObserver):
    """Keeps the names of what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def started(self, run: RunInfo) -> None:
        self.told.append("started")

    def stepped(self, step: int, loss: float, rate: float) -> None:
        self.told.append(f"stepped {step}")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        self.told.append(f"evaluated {step}")

    def collapsed(self, text: str) -> None:
        self.told.append(f"collapsed {text}")


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "runs" / RUN.run_id


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    for module in (console, run_log):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def lines(folder: Path) -> list[str]:
    """Return the lines of the log without their times, which each has."""
    found = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in found)
    return [line[21:] for line in found]


def status(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    return found


def test_the_log_has_the_plain_lines_of_a_run(folder, clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with RunLog(SilentObserver()) as log:
        log.preparing("tokenising", 1, 2)
        assert not folder.exists()
        log.started(RUN)
        log.evaluated(0, {"dev[a].spearman": 31.5}, False)
        clock[0] += 20
        log.stepped(10, 1.25, 340.0)
        log.evaluated(10, {"dev[a].spearman": 40.126}, True)
        log.warned("[b]near[/b]")
        log.collapsed("step 10: all alike")
        log.preparing("scoring the selected state")
    assert lines(folder) == [
        "[red]x · A [bold]title · seed 3",
        "  100 steps over 58,763 sentences · cpu (2 threads) · fp32",
        "  run abc123def456 · state in /home/[me]/cse",
        "     untrained  dev[a].spearman 31.50",
        "  step 10/100  loss 1.2500  dev 31.50  340 sentences/s  3 min left",
        "       step 10  dev[a].spearman 40.13  best",
        "warning: [b]near[/b]",
        "warning: step 10: all alike",
        "scoring the selected state …",
        "finished",
    ]


def test_the_inner_observer_hears_everything(folder):
    heard = Heard()
    with RunLog(heard) as log:
        log.started(RUN)
        log.stepped(1, 1.0, 1.0)
        log.evaluated(1, {"dev.spearman": 1.0}, True)
        log.collapsed("alike")
    assert heard.told == ["started", "stepped 1", "evaluated 1", "collapsed alike"]


def test_the_status_says_how_far_the_run_is(folder, clock):
    with RunLog(SilentObserver()) as log:
        log.started(RUN)
        assert status(folder)["step"] == 0
        assert status(folder)["dev"] is None
        clock[0] += 20
        log.stepped(10, 1.25, 340.0)
        log.evaluated(10, {"dev.spearman": 40.125}, True)
        found = status(folder)
        assert read_status(RUN.run_id) == RunStatus(**{k: v for k, v in found.items() if k != "schema_version"})
    assert {name: found[name] for name in ("schema_version", "run_id", "recipe", "seed", "device")} == {
        "schema_version": 1, "run_id": RUN.run_id, "recipe": "[red]x", "seed": 3, "device": "cpu (2 threads)",
    }  # fmt: skip
    assert (found["host"], found["pid"]) == (socket.gethostname(), os.getpid())
    assert (found["step"], found["steps"], found["seconds_left"]) == (10, 100, 180.0)
    assert (found["metric"], found["dev"]) == ("dev.spearman", 40.125)
    assert found["last_line"] == "step 10  dev.spearman 40.12  best"
    assert not (folder / "status.json").exists()
    assert (folder / "log.txt").exists()


def test_the_status_is_written_once_a_second(folder, clock):
    with RunLog(SilentObserver()) as log:
        log.started(RUN)
        clock[0] += 0.9
        log.stepped(1, 1.0, 1.0)
        assert status(folder)["step"] == 0
        clock[0] += 0.2
        log.stepped(2, 1.0, 1.0)
        assert status(folder)["step"] == 2


def test_a_score_that_is_not_a_number_is_no_score_to_a_program(folder):
    with RunLog(SilentObserver()) as log:
        log.started(RUN)
        log.evaluated(1, {"dev.spearman": math.nan}, False)
        assert status(folder)["dev"] is None


def asked_to_stop(folder: Path) -> None:
    with RunLog(SilentObserver()) as log:
        log.started(RUN)
        (folder / "stop").touch()
        log.evaluated(1, {"dev.spearman": 1.0}, True)  # a checkpoint follows, which is not to be lost
        log.stepped(2, 1.0, 1.0)


def test_a_request_ends_the_run(folder):
    with pytest.raises(StopRequested) as caught:
        asked_to_stop(folder)
    error = caught.value
    assert str(error) == "run abc123de was stopped by `cse runs stop`\n  → go on with: cse run --resume abc123de"
    assert error.exit_code == 1
    assert lines(folder)[-1] == "stopped; go on with: cse run --resume abc123de"
    assert [path.name for path in folder.iterdir()] == ["log.txt"]


def test_a_request_is_looked_for_once_a_second(folder, clock):
    with RunLog(SilentObserver()) as log:
        log.started(RUN)
        (folder / "stop").touch()
        clock[0] += 0.5
        log.stepped(1, 1.0, 1.0)
        clock[0] += 0.6
        with pytest.raises(StopRequested):
            log.stepped(2, 1.0, 1.0)


def test_a_resumed_run_appends_and_forgets_a_request_of_before(folder):
    with pytest.raises(StopRequested):
        asked_to_stop(folder)
    before = lines(folder)
    (folder / "stop").touch()
    with RunLog(SilentObserver()) as log:
        log.started(replace(RUN, done=20))
        log.stepped(21, 1.0, 1.0)
    assert lines(folder)[: len(before)] == before
    assert lines(folder)[len(before)] == "[red]x · A [bold]title · seed 3, going on after step 20"


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (CseError("the loss is nan", "lower it"), ["error: run abc123de: the loss is nan", "  → lower it"]),
        (ValueError("a [b]"), ["error: run abc123de: ValueError: a [b]"]),
        (Pruned("step 5: [dev] 3.00"), ["pruned: step 5: [dev] 3.00"]),
        (KeyboardInterrupt(), ["  run abc123def456 · state in /home/[me]/cse"]),  # `stopped` says it
    ],
)
def test_the_log_ends_with_the_reason(error, last, folder):
    def ended() -> None:
        with RunLog(SilentObserver()) as log:
            log.started(RUN)
            raise error

    with pytest.raises(type(error)):
        ended()
    assert lines(folder)[-len(last) :] == last
    assert not (folder / "status.json").exists()


def test_a_full_disk_costs_no_run_its_life(folder, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    heard = Heard()
    monkeypatch.setattr("cse_cli.core.run_status.write_atomically", full)
    with RunLog(heard) as log:
        log.started(RUN)
        monkeypatch.setattr(Path, "open", full)
        log.stepped(1, 1.0, 1.0)
        log.evaluated(1, {"dev.spearman": 1.0}, True)
    assert heard.told == ["started", "stepped 1", "evaluated 1"]


# --- how others read it -----------------------------------------------------------------------------------------------


@pytest.fixture
def kept(home: Path) -> Callable[..., RunStatus]:
    def keep(run_id: str, **changes: object) -> RunStatus:
        made = replace(RunStatus.of(replace(RUN, run_id=run_id)), **changes)
        made.write()
        return made

    return keep


def test_the_newest_is_first_and_what_cannot_be_read_is_left_out(kept, home):
    kept("a", started="2025-01-01T00:00:00+00:00")
    kept("b", started="2025-01-02T00:00:00+00:00")
    for name, text in (("torn", '{"run_id": '), ("other", '{"run_id": "x"}')):
        (home / "runs" / name).mkdir()
        (home / "runs" / name / "status.json").write_text(text)
    assert [one.run_id for one in all_statuses()] == ["b", "a"]
    assert read_status("none") is None


def test_a_run_is_gone_whose_process_has_ended_on_this_machine(kept):
    here = kept("a")
    assert not here.is_gone
    assert replace(here, pid=999_999_999).is_gone
    assert replace(here, process_started=here.process_started - 100).is_gone  # another process has the id now
    assert not replace(here, pid=999_999_999, host="elsewhere").is_gone


def test_the_lock_of_a_run_says_more_than_a_clock_or_a_process_id(kept):
    here, lock = kept("a"), RunLock("a")
    lock.acquire()
    set_back = replace(here, process_started=here.process_started - 5)  # the clock was
    in_a_container = replace(here, pid=999_999_999)
    assert (set_back.is_gone, in_a_container.is_gone, is_at_work("a")) == (False, False, True)
    lock.release()
    assert (here.is_gone, is_at_work("a")) == (True, False)
    assert not replace(here, host="elsewhere").is_gone
