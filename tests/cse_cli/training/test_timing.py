"""Time is divided without gaps, and tokens are counted."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.core.results import Result, Speed
from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training import train_step
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.train_step import PARTS, Stopwatch, TrainStep, peak_memory
from tests.support.command import cse
from tests.support.shrunken import Small, recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")
CPU = torch.device("cpu")


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows what the test says."""
    now = [100.0]
    monkeypatch.setattr(train_step.time, "perf_counter", lambda: now[0])
    return now


def test_every_moment_belongs_to_one_part(ticking: list[float]) -> None:
    clock = Stopwatch(CPU)
    clock.mark("data")  # nothing was started
    for part, seconds in [("data", 1.0), ("forward", 2.0), ("data", 0.5), ("evaluation", 4.0)]:
        ticking[0] += seconds
        clock.mark(part)  # type: ignore[arg-type]
    ticking[0] += 50
    clock.start()
    ticking[0] += 3
    clock.mark("backward")
    expected = {"data": 1.5, "forward": 2.0, "backward": 3.0, "optimizer": 0.0, "evaluation": 4.0, "other": 0.0}
    assert clock.read() == expected


class Event:
    """A CUDA event whose time the test sets; reading one that has not passed is an error, as on a GPU."""

    now = 0.0
    reached = 0.0

    def __init__(self, device: torch.device, enable_timing: bool) -> None:
        assert (device.type, enable_timing) == ("cuda", True)

    def record(self, stream: object) -> None:
        assert stream == "stream"
        self.at = Event.now

    def query(self) -> bool:
        return self.at <= Event.reached

    def synchronize(self) -> None:
        Event.reached = max(Event.reached, self.at)

    def elapsed_time(self, other: Event) -> float:
        assert self.query()
        assert other.query()
        return (other.at - self.at) * 1000


def test_a_gpu_is_waited_for_only_when_its_time_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: "stream")
    Event.now = Event.reached = 0.0
    monkeypatch.setattr(train_step, "forget_peak", lambda device: None)
    clock = Stopwatch(torch.device("cuda:0"))
    clock.start()
    for _ in range(train_step.PENDING + 10):  # nobody reads: events that have passed do not pile up
        for part in ("forward", "backward"):
            Event.now += 0.25
            clock.mark(part)  # type: ignore[arg-type]
        Event.reached = Event.now - 1.0
        assert len(clock._events) <= train_step.PENDING
    assert Event.reached < Event.now
    seconds = clock.read()
    assert Event.reached == Event.now
    assert seconds["forward"] == pytest.approx((train_step.PENDING + 10) * 0.25)
    assert seconds["forward"] + seconds["backward"] == pytest.approx(Event.now)


def experiment(parts: Small, name: str, *more: str) -> Experiment:
    changes, dropped = parts.options(load(name).recipe)
    return resolve(load(name, [*changes, *more], dropped).recipe, seed=5)


def test_the_memory_of_a_cpu_is_that_of_the_process() -> None:
    before = peak_memory(CPU)
    block = torch.ones(30_000_000)
    assert block.sum() > 0
    assert peak_memory(CPU) >= max(before, 120_000_000)


def stepper(made: Experiment) -> TrainStep:
    settings = made.recipe
    text = open_text(settings.data, made.columns)
    batches = Batches(text, made.specs, settings.train.batch_size, settings.data.max_length, 5)
    return TrainStep(made.method.train(), batches, settings.train, choose("cpu"), 5, 3)


@pytest.mark.slow
def test_a_training_knows_its_time_and_its_work(parts: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_step.time, "perf_counter", count().__next__)  # no moment in which another process runs
    made = experiment(parts, "mocose_en")
    one = stepper(made)
    began = time.perf_counter()
    one.watch.start()
    for done in range(3):
        one.take(done)
    took = time.perf_counter() - began
    lately, speed = one.watch.recent(), one.watch.speed()
    batches = [one.batches.batch(done) for done in range(3)]
    assert set(batches[0]) == {"query", "key"}
    assert one.watch.tokens == sum(int(t.mask.sum()) for batch in batches for t in batch.values())
    assert one.watch.places == sum(t.mask.numel() for batch in batches for t in batch.values())
    assert speed.padding == 1 - one.watch.tokens / one.watch.places
    assert set(speed.seconds) == set(PARTS)
    assert sum(speed.seconds.values()) == took - 2, "all between the start and the last mark"
    assert sum(speed.shares.values()) == pytest.approx(1)
    assert lately["speed/tokens_per_second"] == pytest.approx(speed.tokens_per_second)
    assert one.watch.recent() == {}, "nothing was done since"


@pytest.mark.slow
def test_a_resumed_training_adds_to_what_was_before(parts: Small) -> None:
    made = experiment(parts, "simcse_en")
    first, second = stepper(made), stepper(made)
    first.watch.start()
    first.take(0)
    second.load_state(first.state())
    assert second.watch.read() == first.watch.read()
    assert second.watch.tokens == first.watch.tokens > 0
    second.watch.start()
    second.take(1)
    assert second.watch.tokens > first.watch.tokens
    assert second.watch.read()["forward"] > first.watch.read()["forward"]


@pytest.mark.exhaustive
def test_a_run_says_where_its_time_went(parts: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recipe(tmp_path, parts, steps=12, evaluate_every=4)
    code, out, _ = cse("run", str(file), capsys=capsys)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("speed:")]
    assert "sentences/s" in line
    assert "tokens/s" in line
    assert "forward" in line
    assert "evaluation" in line
    assert line.endswith("GB")
    code, out, _ = cse("run", str(file), "--seed", "4", "--json", capsys=capsys)
    result = Result.model_validate(json.loads(out)["results"][0])
    assert isinstance(result.speed, Speed)
    assert result.speed.tokens_per_second is not None
    old = result.model_dump(mode="json", exclude={"speed"})
    assert Result.model_validate(old).speed is None, "results written before still load"
