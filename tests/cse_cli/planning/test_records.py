"""Times of earlier runs: the same experiment and device, whole runs only, and medians by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cse_cli.core.identity import Identity
from cse_cli.core.results import Speed
from cse_cli.data.identity import Known
from cse_cli.planning import records
from cse_cli.planning.records import earlier_runs
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import MODEL
from tests.support.records import recorded, result

KNOWN = Known(settings="wanted", code={"losses.info_nce": "new code"})
AT = datetime(2026, 11, 24, tzinfo=UTC)


def run(seconds=100.0, scoring=30.0, wall=150.0, *, settings="wanted", device="cpu", end="finished", memory=900):
    """Record a run, and return it as if it had taken `wall` seconds."""
    speed = Speed(seconds={"forward": seconds - scoring, "evaluation": scoring}, peak_memory=memory)
    made = result(identity=Identity(settings=settings), seconds=seconds, speed=speed, device=device)
    record = recorded(made, end=end)
    (record.path / MODEL).mkdir()
    (record.path / MODEL / "weights").write_bytes(bytes(1000))
    (found,) = (one for one in all_runs() if one.run_id == record.run_id)
    end_of_run = AT + timedelta(seconds=wall)
    return RecordedRun(found.about, found.end, started=AT, ended=end_of_run, result_text=found.result_text)


def test_medians_over_runs():
    found = earlier_runs(KNOWN, "cpu", "fp32", [run(100, 30, 150, memory=800), run(90, 10, 100), run(200, 20, 260)])
    assert found is not None
    assert found.runs == 3
    assert found.training == 80  # of 70, 80 and 180
    assert found.evaluation == 80  # of 30 + 50, 10 + 10 and 20 + 60
    assert found.memory == 900
    assert (found.space.state, found.space.checkpoint) == (1000, 3000)


@pytest.mark.parametrize("other", [{"settings": "other"}, {"device": "cuda:0 (H200)"}, {"end": "failed"}])
def test_other_experiments_devices_and_ends_do_not_count(other):
    assert earlier_runs(KNOWN, "cpu", "fp32", [run(**other)]) is None


def test_another_precision_does_not_count():
    assert earlier_runs(KNOWN, "cpu", "bf16", [run()]) is None


def test_interrupted_runs_do_not_count(monkeypatch):
    whole, interrupted = run(), run(seconds=1.0)
    read = records.read_history

    def history(folder, **options):
        found = read(folder, **options)
        if folder.name == interrupted.run_id:
            found.starts.append(found.starts[0])
        return found

    monkeypatch.setattr(records, "read_history", history)
    found = earlier_runs(KNOWN, "cpu", "fp32", [interrupted, whole])
    assert found is not None
    assert (found.runs, found.training) == (1, 70)


def test_the_newest_runs_count():
    runs = [run(100.0 + place) for place in range(7)]
    found = earlier_runs(KNOWN, "cpu", "fp32", runs)
    assert found is not None
    assert (found.runs, found.training) == (5, 72)
