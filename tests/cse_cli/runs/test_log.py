"""The log of a run has its printed lines, and the run notices a request to stop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cse_cli.core.events import (
    Collapsed,
    Evaluated,
    Preparing,
    Pruned,
    RunInfo,
    SilentObserver,
    Started,
    Stepped,
    Warned,
)

from cse_cli.core import console
from cse_cli.runs import log as logs
from cse_cli.runs.log import RunLog
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
    for module in (console, logs):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def lines(folder: Path) -> list[str]:
    """Return the lines of the log without their times, which each has."""
    found = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in found)
    return [line[21:] for line in found]


def test_the_log_has_the_plain_lines_of_a_run(folder, clock, monkeypatch, snapshot):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with RunLog(SilentObserver()) as log:
        log.observe(Preparing("tokenizing", 1, 2))
        assert not folder.exists()
        log.observe(Started(RUN))
        log.observe(Evaluated(0, {"dev[a].spearman": 31.5}, False))
        clock[0] += 20
        log.observe(Stepped(10, 1.25, 340.0))
        log.observe(Evaluated(10, {"dev[a].spearman": 40.126}, True))
        log.observe(Warned("[b]near[/b]"))
        log.observe(Collapsed("step 10: all alike"))
        log.observe(Preparing("scoring the selected state"))
    assert "\n".join(lines(folder)) == snapshot


def test_the_inner_observer_gets_everything(folder):
    heard = Heard()
    with RunLog(heard) as log:
        log.observe(Started(RUN))
        log.observe(Stepped(1, 1.0, 1.0))
        log.observe(Evaluated(1, {"dev.spearman": 1.0}, True))
        log.observe(Collapsed("alike"))
    assert heard.told == ["started", "stepped 1", "evaluated 1", "collapsed alike"]


def asked_to_stop(folder: Path) -> None:
    with RunLog(SilentObserver()) as log:
        log.observe(Started(RUN))
        (folder / "stop").touch()
        log.observe(Evaluated(1, {"dev.spearman": 1.0}, True))  # a checkpoint follows, which is not to be lost
        log.observe(Stepped(2, 1.0, 1.0))


def test_a_request_ends_the_run(folder):
    with pytest.raises(StopRequested) as caught:
        asked_to_stop(folder)
    error = caught.value
    assert "abc123de" in error.message
    assert error.next_action == "resume it: cse run --resume abc123de"
    assert error.exit_code == 1
    assert lines(folder)[-1] == "stopped. To resume: cse run --resume abc123de"


def test_a_request_is_noticed_within_a_second(folder, clock):
    with RunLog(SilentObserver()) as log:
        log.observe(Started(RUN))
        log.observe(Stepped(0, 1.0, 1.0))
        (folder / "stop").touch()
        clock[0] += 0.5
        log.observe(Stepped(1, 1.0, 1.0))
        clock[0] += 0.6
        with pytest.raises(StopRequested):
            log.observe(Stepped(2, 1.0, 1.0))


def test_a_resumed_run_appends_and_drops_an_earlier_request(folder):
    with pytest.raises(StopRequested):
        asked_to_stop(folder)
    before = lines(folder)
    (folder / "stop").touch()
    with RunLog(SilentObserver()) as log:
        log.observe(Started(replace(RUN, done=20)))
        log.observe(Stepped(21, 1.0, 1.0))
    assert lines(folder)[: len(before)] == before
    assert lines(folder)[len(before)] == "[red]x · A [bold]title · seed 3, resuming after step 20"


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
            log.observe(Started(RUN))
            raise error

    with pytest.raises(type(error)):
        ended()
    assert lines(folder)[-len(last) :] == last


def test_a_full_disk_does_not_end_the_run(folder, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    heard = Heard()
    with RunLog(heard) as log:
        log.observe(Started(RUN))
        monkeypatch.setattr(Path, "open", full)
        log.observe(Stepped(1, 1.0, 1.0))
        log.observe(Evaluated(1, {"dev.spearman": 1.0}, True))
    assert heard.told == ["started", "stepped 1", "evaluated 1"]
