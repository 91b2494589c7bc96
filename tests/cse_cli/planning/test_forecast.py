"""Forecasts from planted times: sums by hand, what is unknown, and what is measured how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cse_cli.data.identity import Known
from cse_cli.data.requirements import Availability
from cse_cli.planning import forecast as forecasting
from cse_cli.planning.disk_space import RECORDS, DiskSpace
from cse_cli.planning.forecast import CLOSING, PREPARATION, Place, forecast, makespan, of_probe, of_records, shape
from cse_cli.planning.probe import Probe
from cse_cli.planning.records import Earlier
from cse_cli.planning.scoring import ScoringTimes
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import Requirement
from cse_cli.training.build import Job
from registry.errors import MissingError

PROBE = Probe(
    device="cpu (1 threads)",
    precision="fp32",
    build=4.0,
    tokenizing=6.0,
    step=0.5,
    scoring=ScoringTimes({"dev": 3.0, "test": 5.0}, 7.0, ()),
    write=1e-6,
    rows=12_000,
    memory=700_000_000,
    space=DiskSpace(checkpoint=3_000_000, state=1_000_000),
    cache=50_000,
    seconds=9.0,
)


def quickstart(*overrides):
    return load("quickstart", overrides).recipe


@pytest.fixture(autouse=True)
def all_here(monkeypatch):
    """Every requirement is on this machine, and nothing has to be made."""
    monkeypatch.setattr(forecasting, "availabilities", lambda _: [])


def runs(*overrides, seeds=(0,)):
    loaded = load("quickstart", overrides)
    return [(Job(loaded, seed, "cpu"), Known(settings=loaded.recipe.hash())) for seed in seeds]


class Measured:
    """Probe that always returns the same times. `jobs` are the probed recipes."""

    def __init__(self, probe=PROBE):
        self.probe, self.jobs, self.missing, self.seconds = probe, [], [], []

    def __call__(self, job, seconds, missing):
        self.jobs.append(job.loaded.recipe)
        self.missing.append(list(missing))
        self.seconds.append(seconds)
        return self.probe


# One run.


def test_a_run_by_hand():
    # 60 steps, an evaluation after every 20: three dev scores, three checkpoints and at most three best states.
    cost = of_probe(PROBE, quickstart())
    assert cost.steps == 60
    assert cost.preparation == 4.0
    assert cost.training == pytest.approx(60 * 0.5 + (3 * 3e6 + 3 * 1e6) * 1e-6)
    assert cost.evaluation == pytest.approx(7.0 + 3 * 3.0 + 7.0 + CLOSING)  # all evaluators before and after


@pytest.mark.parametrize(
    ("overrides", "scored"),
    [
        (["evaluate.eval_on_start=false"], 3 + 3 * 3 + 7),
        (["train.evaluate_every=0"], 7 + 1 * 3 + 7),
        (["train.evaluate_every=25"], 7 + 3 * 3 + 7),
        (["train.steps=5"], 7 + 1 * 3 + 7),
    ],
)
def test_evaluations_are_counted(overrides, scored):
    assert of_probe(PROBE, quickstart(*overrides)).evaluation == pytest.approx(scored + CLOSING)


def test_without_selection_only_the_last_state_is_scored():
    recipe = quickstart("evaluate.eval_on_start=false")
    unselected = recipe.model_copy(
        update={"evaluate": recipe.evaluate.model_copy(update={"metric_for_best_model": None})}
    )
    assert of_probe(PROBE, unselected).evaluation == pytest.approx(7 + CLOSING)


def test_steps_of_epochs_leave_out_the_incomplete_batch():
    recipe = quickstart()
    epochs = recipe.model_copy(update={"train": recipe.train.model_copy(update={"steps": None, "epochs": 2})})
    assert of_probe(PROBE, epochs).steps == 2 * (12_000 // 64)


def test_a_run_like_earlier_ones():
    earlier = Earlier(3, 40.0, 8.0, 900, DiskSpace(30, 10))
    cost = of_records(earlier, 60)
    assert (cost.seconds, cost.memory, cost.space, cost.earlier) == (PREPARATION + 48.0, 900, DiskSpace(30, 10), 3)


# Several runs.


@pytest.mark.parametrize(("slots", "last"), [(1, 15.0), (2, 8.0), (3, 6.0), (9, 6.0)])
def test_the_last_of_parallel_runs(slots, last):
    assert makespan([2.0, 3.0, 4.0, 6.0], slots) == last


def test_no_runs_take_no_time():
    assert makespan([], 2) == 0.0
    assert forecast([], Place("here"), [], Measured()).seconds == 0.0


def test_seeds_are_probed_once_and_tokenized_once():
    measure = Measured()
    found = forecast(runs(seeds=(0, 1, 2)), Place("one run after the other", "cpu"), [], measure, start=1.0)
    assert len(measure.jobs) == 1
    one = of_probe(PROBE, quickstart()).seconds
    assert found.seconds == pytest.approx(1.0 + 6.0 + 3 * one)
    assert {stage.name for stage in found.stages} == {"preparation", "training", "evaluation"}
    assert sum(stage.seconds for stage in found.stages) == pytest.approx(found.seconds)
    assert {stage.basis for stage in found.stages} == {"1 probe of 9 s"}
    assert found.disk == {
        "tokens": 50_000,
        "runs": 3 * (1_000_000 + RECORDS),
        "checkpoints": 2 * 3_000_000 + 2 * 1_000_000,
    }
    assert found.memory == 700_000_000


def test_parallel_runs_need_the_space_of_their_checkpoints_together():
    found = forecast(runs(seeds=(0, 1, 2)), Place("2 runs in parallel", "cpu", 2), [], Measured())
    one = of_probe(PROBE, quickstart()).seconds
    assert found.seconds == pytest.approx(6.0 + 2 * one)
    assert found.disk["checkpoints"] == 2 * 8_000_000


def test_only_settings_that_change_the_work_are_probed_again():
    same = ["losses.twins.weight=0.5", "train.learning_rate=1e-3", "train.steps=90", "queue.forgetting_rate=0.5"]
    other = ["queue.length=64", "train.batch_size=32", "data.max_length=16", "losses.identical.name='nt_xent'"]
    shapes = {shape(quickstart(override)) for override in same}
    assert shapes == {shape(quickstart())}
    assert len({shape(quickstart(override)) for override in other} | shapes) == 5
    measure = Measured()
    forecast([*runs("train.steps=90"), *runs(), *runs("queue.length=64")], Place("", "cpu"), [], measure)
    assert len(measure.jobs) == 2


def test_many_probes_are_shorter():
    measure = Measured()
    several = [one for length in range(64, 64 + 40) for one in runs(f"queue.length={length}")]
    forecast(several, Place("", "cpu"), [], measure)
    assert measure.seconds == [60 / 40] * 40


# What is unknown.


def test_before_the_download_only_its_size_is_known(monkeypatch):
    model, gone = Requirement("model", "bert"), Requirement("file", "gone.tsv")
    found = [
        Availability(model, "fetchable", "hf:bert", (), 400_000_000),
        Availability(gone, "missing", problem="does not exist", action="make it"),
    ]
    monkeypatch.setattr(forecasting, "availabilities", lambda _: found)
    measure = Measured()
    plan = forecast(runs(), Place("", "cpu"), [], measure)
    assert measure.jobs == []
    assert (plan.seconds, plan.memory, plan.disk) == (None, None, {"downloads": 400_000_000})
    assert plan.download == "400.0 MB"
    assert plan.missing == ("file gone.tsv: does not exist → make it",)
    assert [(stage.name, stage.seconds) for stage in plan.stages] == [
        ("download", None),
        ("preparation", None),
        ("training", None),
        ("evaluation", None),
    ]


def test_what_was_not_measured_is_named():
    probe = replace(PROBE, scoring=ScoringTimes({"dev": 3.0, "test": 0.0}, 3.0, ("evaluator test",)))
    assert forecast(runs(), Place("", "cpu"), [], Measured(probe)).unmeasured == ("evaluator test",)


# Columns that have to be made.


class Translation:
    """A planted step: 1,000 rows, 400 of them made, 20 rows per second."""

    column, title, rows, done = "translation", "translate text to de", 1000, 400

    def __init__(self, rate=20.0):
        self.rate, self.measured = rate, []

    def measure(self, device, seconds):
        self.measured.append((device, seconds))
        if self.rate is None:
            raise MissingError("model t5 is not on this machine", code="data.missing_requirement")
        return self.rate


def test_the_rest_of_a_column_takes_its_time_once(monkeypatch):
    step, measure = Translation(), Measured()
    monkeypatch.setattr(forecasting, "data_steps", lambda _: [step])
    plan = forecast(runs(seeds=(0, 1)), Place("", "cpu"), [], measure)
    assert step.measured == [("cpu", 3.0)]
    assert measure.missing == [["translation"]]
    stage = plan.stages[0]
    assert (stage.name, stage.seconds, stage.detail) == ("data", 30.0, "translate text to de, 600 of 1,000 rows")
    assert plan.seconds == pytest.approx(30 + 6 + 2 * of_probe(PROBE, quickstart()).seconds)


def test_a_finished_column_costs_nothing(monkeypatch):
    step, measure = Translation(), Measured()
    step.done = 1000
    monkeypatch.setattr(forecasting, "data_steps", lambda _: [step])
    plan = forecast(runs(), Place("", "cpu"), [], measure)
    assert (step.measured, measure.missing) == ([], [[]])
    assert "data" not in {one.name for one in plan.stages}


def test_a_column_whose_model_is_missing_is_unknown(monkeypatch):
    monkeypatch.setattr(forecasting, "data_steps", lambda _: [Translation(rate=None)])
    plan = forecast(runs(), Place("", "cpu"), [], Measured())
    assert (plan.stages[0].seconds, plan.seconds) == (None, None)


# Records.


def test_records_come_before_probes(monkeypatch):
    asked = []

    def earlier(known, device, precision, recorded):
        asked.append((known.settings, precision, recorded))
        return Earlier(2, 10.0, 5.0, 800, DiskSpace(30, 10))

    monkeypatch.setattr(forecasting, "earlier_runs", earlier)
    measure = Measured()
    plan = forecast(runs(), Place("", "cpu"), [], measure)
    assert measure.jobs == []
    assert asked == [(quickstart().hash(), "fp32", [])]
    assert plan.seconds == pytest.approx(PREPARATION + 15.0)
    assert {stage.basis for stage in plan.stages} == {"2 earlier runs on this device"}
