"""Events are appended whole, read from any offset, and damaged ones are counted and not used."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import pytest

from cse_cli.runs import events
from cse_cli.runs.events import FILE, EventLog, History, read_events, read_history
from tests.support.records import recorded


def kinds(folder: Path, offset: int = 0) -> list[str]:
    return [event.kind for event, _ in read_events(folder, offset)]


def test_events_are_read_back_and_the_rest_from_an_offset(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append("metrics", step=1, values={"loss": 0.5, "bad": math.nan, "high": math.inf})
    ((first, offset),) = read_events(tmp_path)
    assert math.isnan(float(first.data["values"]["bad"]))
    log.append("evaluated", step=1, scores={"dev.spearman": 50.0}, best=True)
    log.append("finished", reason="")
    assert kinds(tmp_path, offset) == ["evaluated", "finished"]
    history = read_history(tmp_path)
    assert history.metrics["high"] == {1: math.inf}
    assert history.evaluated == {1: {"dev.spearman": 50.0}}
    assert (history.end and history.end.kind, history.damaged) == ("finished", 0)
    assert read_history(tmp_path, without=["metrics"]).metrics == {}


def test_a_start_after_the_end_resumes_and_steps_count_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for loss in (3.0, 2.0):
        log.append("started", step=0, steps=10)
        log.append("metrics", step=5, values={"train/loss": loss})
        log.append("stopped", reason="")
    log.append("started", step=5, steps=10)
    history = read_history(tmp_path)
    assert (history.end, history.step, len(history.starts)) == (None, 5, 3)
    assert history.metrics == {"train/loss": {5: 2.0}}


def test_an_incomplete_line_is_skipped_and_then_cut(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append("started", step=0)
    log.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind": "metr' + b"x" * 200_000)
    assert kinds(tmp_path) == ["started"]
    EventLog(tmp_path).append("finished")
    assert kinds(tmp_path) == ["started", "finished"]


def test_a_process_that_is_killed_loses_no_whole_event(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        log = EventLog(tmp_path)
        for step in range(10**9):
            log.append("metrics", step=step, values={"train/loss": 1.0})
    until = time.monotonic() + 30
    while read_history(tmp_path).step < 50 and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = read_history(tmp_path)
    EventLog(tmp_path).append("metrics", step=-1, values={"train/loss": 1.0})
    after = read_history(tmp_path)
    assert after.damaged == found.damaged == 0
    steps = after.metrics["train/loss"]
    assert sorted(steps) == list(range(-1, len(steps) - 1))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path)
    log.append("started", step=0)
    calls = []

    def full(descriptor: int, content: bytes) -> int:
        calls.append(content)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, content[:10])

    write = os.write
    monkeypatch.setattr(events.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        log.append("metrics", step=1, values={"loss": 1.0})
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 1
    monkeypatch.undo()
    log.append("finished")
    assert kinds(tmp_path) == ["started", "finished"]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"nonsense", b"[1]", b'{"kind": "metrics"}', b'{"kind": "metrics", "time": 1e30, "step": 1, "values": {}}',
        b'{"kind": "metrics", "time": 1, "step": "x", "values": {"a": 1}}',
        b'{"kind": "metrics", "time": 1, "step": 1e999, "values": {"a": 1}}', b"\xff\xfe", b"[" * 100_000,
        b'{"kind": "evaluated", "time": 1, "step": 1}', b'{"kind": "tags", "time": 1, "values": 3}',
    ],
)  # fmt: skip
def test_a_damaged_line_is_counted_and_not_used(tmp_path: Path, line: bytes) -> None:
    good = json.dumps({"kind": "metrics", "time": 1.0, "step": 7, "values": {"train/loss": 1.0}}).encode()
    (tmp_path / FILE).write_bytes(b"\n".join([good, line, good, b""]))
    history = read_history(tmp_path)
    assert (history.damaged, history.metrics) == (1, {"train/loss": {7: 1.0}})


def test_no_file_has_no_events(tmp_path: Path) -> None:
    assert read_history(tmp_path) == History()


def test_a_record_that_ended_takes_nothing_more() -> None:
    record = recorded(end="failed")
    record.metrics({"loss": 1.0}, 5)
    record.end("finished")
    assert kinds(record.path) == ["started", "failed"]
