"""Time is divided without gaps, work is counted as papers count it, and only known devices have a utilization."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli.core.devices import Compute, choose
from cse_cli.core.results import Result, Speed
from cse_cli.data.batches import Batches, Size
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training import timing
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.method import Method
from cse_cli.training.timing import PARTS, Clock, Stopwatch, known_peak, model_flops, peak_flops, peak_memory
from cse_cli.training.train_step import TrainStep
from registry.encoders.cost import Cost, cost_of
from tests.support.command import cse
from tests.support.shrunken import Small, recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")
CPU = torch.device("cpu")


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows what the test says."""
    now = [100.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_every_moment_belongs_to_one_part(ticking: list[float]) -> None:
    clock = Clock(CPU)
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
    clock = Clock(torch.device("cuda:0"))
    clock.start()
    for _ in range(timing.PENDING + 10):  # nobody reads: events that have passed do not pile up
        for part in ("forward", "backward"):
            Event.now += 0.25
            clock.mark(part)  # type: ignore[arg-type]
        Event.reached = Event.now - 1.0
        assert len(clock._events) <= timing.PENDING
    assert Event.reached < Event.now
    seconds = clock.read()
    assert Event.reached == Event.now
    assert seconds["forward"] == pytest.approx((timing.PENDING + 10) * 0.25)
    assert seconds["forward"] + seconds["backward"] == pytest.approx(Event.now)


def test_sizes_are_those_of_real_tokens() -> None:
    assert Size.of(torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])) == Size(places=8, tokens=4, squares=10)


def test_operations_are_counted_as_palm_does() -> None:
    """BERT-base: 85 million weights in its blocks; 6·N·T + 12·layers·width·n²."""
    cost = Cost(weights=84_934_656, attention=12 * 768)
    flops = model_flops(cost, Size(places=64, tokens=32, squares=32 * 32))
    assert flops == 6 * 84_934_656 * 32 + 12 * 12 * 768 * 32 * 32
    assert model_flops(replace(cost, trained=False), Size(64, 32, 1024)) == flops / 3


def experiment(parts: Small, name: str, *more: str) -> Experiment:
    changes, dropped = parts.options(load(name).recipe)
    return resolve(load(name, [*changes, *more], dropped).recipe, seed=5)


def test_the_cost_of_blocks_is_that_of_their_matrices(parts: Small) -> None:
    made = experiment(parts, "mocose_en")
    encoder: Any = made.scored
    config = encoder.backbone.config
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    expected = Cost(layers * (4 * width * width + 2 * width * inner), layers * width)
    assert cost_of(encoder) == expected
    assert cost_of(made.method.encoder("target")) == replace(expected, trained=False)


def test_albert_goes_through_the_same_matrices_several_times() -> None:
    from transformers import AlbertConfig, AlbertModel

    from registry.encoders.cost import _blocks

    config = AlbertConfig(
        vocab_size=20, embedding_size=4, hidden_size=8, num_hidden_layers=6, num_attention_heads=2, intermediate_size=16
    )
    assert _blocks(AlbertModel(config)) == Cost(6 * (4 * 8 * 8 + 2 * 8 * 16), 6 * 8)


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H200", "bf16", 989e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 67e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
        ("NVIDIA A100-SXM4-80GB", "fp16", 312e12),
        ("NVIDIA L40S", "bf16", 362e12),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("Tesla T4", "fp16", 65e12),
        ("NVIDIA GH200 480GB", "bf16", None),
        ("NVIDIA GeForce GTX 1080", "fp32", None),
    ],
)
def test_only_devices_that_are_known_have_a_peak(name: str, precision: str, peak: float | None) -> None:
    assert known_peak(name, precision) == peak


def test_a_cpu_has_no_peak_and_its_memory_is_the_process() -> None:
    assert peak_flops(choose("cpu")) is None
    before = peak_memory(CPU)
    block = torch.ones(30_000_000)
    assert block.sum() > 0
    assert peak_memory(CPU) >= max(before, 120_000_000)


def stepper(made: Experiment) -> TrainStep:
    settings = made.recipe
    text = open_text(settings.data, made.columns)
    batches = Batches(text, made.plans, settings.train.batch_size, settings.data.max_length, 5)
    return TrainStep(made.method.train(), batches, settings.train, choose("cpu"), 5, 3)


def test_a_training_knows_its_time_and_its_work(parts: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.time, "perf_counter", count().__next__)  # no moment in which another process runs
    made = experiment(parts, "mocose_en")
    one = stepper(made)
    one.watch._peak = 1e9  # as if the device were known
    began = time.perf_counter()
    one.watch.clock.start()
    for done in range(3):
        one.take(done)
    took = time.perf_counter() - began
    lately, speed = one.watch.recent(), one.watch.speed()
    batches = [one.batches.batch(done) for done in range(3)]
    assert one.watch.work.tokens == sum(int(t.mask.sum()) for batch in batches for t in batch.values())
    assert one.watch.work.places == sum(t.mask.numel() for batch in batches for t in batch.values())
    cost = cost_of(made.scored)
    assert cost is not None
    costs = {"query": cost, "key": replace(cost, trained=False)}
    assert set(batches[0]) == set(costs)
    flops = sum(model_flops(costs[view], Size.of(t.mask)) for batch in batches for view, t in batch.items())
    assert speed.model_flops == pytest.approx(flops)
    assert set(speed.seconds) == set(PARTS)
    assert sum(speed.seconds.values()) == took - 2, "all between the start and the last mark"
    assert sum(speed.shares.values()) == pytest.approx(1)
    assert speed.model_flop_utilization == pytest.approx(flops / sum(speed.seconds.values()) / 1e9)
    assert lately["speed/model_flop_utilization"] == pytest.approx(speed.model_flop_utilization)
    assert lately["speed/tokens_per_second"] == pytest.approx(speed.tokens_per_second)
    assert one.watch.recent() == {}, "nothing was done since"


def test_a_resumed_training_adds_to_what_was_before(parts: Small) -> None:
    made = experiment(parts, "simcse_en")
    first, second = stepper(made), stepper(made)
    first.watch.clock.start()
    first.take(0)
    second.load_state(first.state())
    assert second.watch.clock.read() == first.watch.clock.read()
    assert second.watch.work == first.watch.work
    second.watch.clock.start()
    second.take(1)
    assert second.watch.work.steps == 2
    assert second.watch.clock.read()["forward"] > first.watch.clock.read()["forward"]
    old = first.state()
    del old["watch"]  # a checkpoint written before time was measured
    stepper(made).load_state(old)


def test_a_method_without_a_transformer_has_no_operations(parts: Small) -> None:
    from tests.cse_cli.training.test_method import make

    method: Method = make(dropout=0.0)
    watch = Stopwatch(method, Compute(CPU, "fp32"))
    watch.count({name: Size(8, 8, 8) for name in method.views})
    assert watch.speed().model_flops == 0
    assert watch.speed().model_flop_utilization is None


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


class Use:
    """Use of the cores that the test sets."""

    seconds = 0.0
    cores = (0.0, 0.0)

    def read(self) -> tuple[float, float]:
        return self.cores


@pytest.mark.parametrize(
    ("threads", "own", "others", "warns"),
    [
        (2, 1.7, 0.0, False),  # alone, OpenMP's threads wait for each other
        (2, 1.0, 0.9, True),
        (2, 1.9, 0.1, False),
        (2, 0.3, 0.4, False),  # it waits for data
        (1, 1.0, 1.0, False),
        (1, 0.4, 1.6, True),
    ],
)
def test_a_run_that_gets_too_few_cores_warns_once(
    threads: int, own: float, others: float, warns: bool, parts: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CoreUse", Use)
    monkeypatch.setattr(timing, "schedulable_cores", lambda: 2)
    monkeypatch.setattr(timing.torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(Use, "cores", (own, others))
    watch = Stopwatch(experiment(parts, "simcse_en").method, Compute(CPU, "fp32"))
    assert watch.shortage() is None, "too early"
    monkeypatch.setattr(Use, "seconds", timing.SHORTAGE_SECONDS)
    said = watch.shortage()
    assert (said is not None) == warns
    assert said is None or f"{own} of {threads} core" in said
    assert watch.shortage() is None or not warns
