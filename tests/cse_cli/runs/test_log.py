"""The log of a run is its events in words, and a run notices a request to end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cse_cli.runs import record as records
from cse_cli.runs.details import print_log
from cse_cli.runs.events import Pruned
from cse_cli.runs.record import RunRecord, answer, log_of, request_end
from cse_cli.runs.signals import ending
from registry.errors import CseError, RunFailedError, StopRequested
from tests.support.errors import refuses
from tests.support.records import recorded


@pytest.fixture
def record(home: Path) -> RunRecord:
    return recorded(end=None, name="one", run_id="ab" * 16)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the log without their times, which each event has."""
    print_log("one")
    lines = capsys.readouterr().out.splitlines()
    return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line) for line in lines]


def test_the_log_has_the_events_of_a_run_in_words(record, capsys, monkeypatch):
    record.evaluated(0, {"dev[a].spearman": 31.5}, False)
    record.metrics({"train/loss": 1.25, "health/cosine": 0.1}, 10)
    record.metrics({"train/loss": 1.0}, 20)  # within ten seconds of the other
    record.metrics({"dev/spearman": 40.0}, 20)
    record.evaluated(20, {"dev[a].spearman": 40.126}, True)
    record.event("warning", text="[b]near[/b]")
    record.event("halted", reason="stopped early at step 20")
    record.progress("tokenizing", 1, 2)
    monkeypatch.setattr(records, "PROGRESS_SECONDS", 0.0)
    record.progress("scoring the selected state", 0.5, 1)
    log_of(record.run_id).write_text("a library speaks\n")
    lines = printed(capsys)
    assert re.fullmatch(r"started on \S+, process \d+: 100 steps", lines[0])
    assert lines[1:] == [
        "untrained  dev[a].spearman 31.50", "step 10  loss 1.2500", "step 20  dev[a].spearman 40.13  best",
        "warning: [b]near[/b]", "stopped early at step 20", "scoring the selected state …", "a library speaks",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (CseError("the loss is nan", "lower it"), ["failed: the loss is nan", "  → lower it"]),
        (ValueError("a [b]"), ["failed: ValueError: a [b]"]),
        (Pruned("step 5: [dev] 3.00"), ["pruned: step 5: [dev] 3.00"]),
        (KeyboardInterrupt(), ["stopped. To resume: cse run --resume abababab"]),
    ],
)
def test_the_log_ends_with_the_reason(error, last, record, capsys):
    with pytest.raises(type(error)), ending(record):
        raise error
    assert printed(capsys)[-len(last) :] == last


def test_a_run_that_did_not_start_has_no_log(home):
    record = recorded(end=None, name="one")
    record.path.joinpath("events.jsonl").write_text("")
    with refuses("runs.no_log", record.run_id[:8]):
        print_log("one")


def test_a_request_is_noticed_within_a_second(record, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(records.time, "monotonic", lambda: now[0])
    record.stop_if_requested()
    request_end(record.run_id)
    record.stop_if_requested()
    now[0] += 1.1
    with pytest.raises(StopRequested) as caught:
        record.stop_if_requested()
    assert record.run_id[:8] in caught.value.message
    assert caught.value.next_action == f"resume it: cse run --resume {record.run_id[:8]}"
    assert caught.value.exit_code == 1
    record.started(20, 100)  # an earlier request is void
    now[0] += 1.1
    record.stop_if_requested()


@pytest.mark.parametrize("pruned", [False, True])
def test_the_run_of_a_trial_waits_until_the_search_has_seen_its_score(home, monkeypatch, pruned):
    record = recorded(end=None, search="s", trial=1)
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3 and pruned:
            request_end(record.run_id, "step 10: dev score 3.00")
        elif len(waits) == 3:
            answer(record.run_id, 10)

    monkeypatch.setattr(records.time, "sleep", sleep)
    if pruned:
        with pytest.raises(Pruned, match=r"step 10: dev score 3\.00"):
            record.evaluated(10, {"dev.spearman": 3.0}, False)
    else:
        record.evaluated(10, {"dev.spearman": 3.0}, False)
    assert len(waits) == 3


def test_an_end_is_recorded_with_everything_that_its_error_says(record):
    from cse_cli.jobs.engine import recorded_error

    error = RunFailedError("the loss is nan\n  view anchor", "lower it", code="training.nan")
    with pytest.raises(RunFailedError), ending(record):
        raise error
    again = recorded_error(record.run_id)
    assert (type(again), str(again), again.code) == (RunFailedError, str(error), "training.nan")
