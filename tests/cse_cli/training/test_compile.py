"""Compiled blocks give the loss of the blocks as they are, change nothing else, and give way where they fail."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cse_cli.core.devices import Compute, choose
from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Train
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.optimizer import AUTO_STEPS, Compiled, compile_blocks
from cse_cli.training.train_step import TrainStep
from registry.encoders.compiled import CompiledBlocks, compiled
from tests.support.shrunken import Small

pytestmark = pytest.mark.usefixtures("few_pairs")
STEPS = 3


def experiment(parts: Small, name: str, *more: str) -> Experiment:
    """Return a tiny version without dropout."""
    changes, dropped = parts.options(load(name).recipe)
    off = [
        f"encoders.{key}.dropout=0.0" for key, part in load(name).recipe.encoders.items() if "dropout" in part.params
    ]
    return resolve(load(name, [*changes, *off, *more], dropped).recipe, seed=5)


def stepper(made: Experiment, told: list[str]) -> TrainStep:
    recipe = made.recipe
    batches = Batches(
        open_text(recipe.data, made.columns), made.specs, recipe.train.batch_size, recipe.data.max_length, 5
    )
    return TrainStep(made.method.train(), batches, recipe.train, choose("cpu"), 5, STEPS, told.append)


def losses(one: TrainStep) -> list[float]:
    return [one.take(done).loss.item() for done in range(STEPS)]


@pytest.mark.exhaustive  # three minutes
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("simcse_en", ["encoders.online.pooling=mean", "train.mini_batch_size=3"]),
        ("mocose_en", ["encoders.target.dropout=0.0"]),
    ],
)
def test_compiled_blocks_give_the_same_losses(name: str, more: list[str], parts: Small) -> None:
    told: list[str] = []
    plain = losses(stepper(experiment(parts, name, *more), told))
    made = experiment(parts, name, *more, "train.compile=on")
    keys = list(made.method.state_dict())
    one = stepper(made, told)
    fast = losses(one)
    assert told == []
    assert one.compiled is not None
    assert all(each.active and not each.failed and each._made for each in one.compiled.blocks)
    assert fast == pytest.approx(plain, abs=1e-5)
    assert list(made.method.state_dict()) == keys


@pytest.mark.slow
def test_what_fails_to_compile_runs_as_it_is_and_says_so_once(parts: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler here\nsecond line")

    monkeypatch.setattr(torch, "compile", broken)
    told: list[str] = []
    plain = losses(stepper(experiment(parts, "mocose_en"), told))
    fast = losses(stepper(experiment(parts, "mocose_en", "train.compile=on"), told))
    assert fast == pytest.approx(plain, abs=1e-5)
    assert told == ["the blocks run without compilation, because it failed: RuntimeError: no compiler here"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stand in for the compiler: what it is asked for is kept, and runs as it is."""
    asked: list[dict[str, Any]] = []

    def compile_(function: Any, **options: Any) -> Any:
        def run(vectors: Tensor, attended: Tensor) -> Tensor:
            asked.append({"shape": tuple(vectors.shape[:2]), **options})
            made: Tensor = function(vectors, attended)
            return made

        return run

    monkeypatch.setattr(torch, "compile", compile_)
    return asked


@pytest.mark.slow
def test_shapes_stay_the_same_and_evaluation_is_not_compiled(parts: Small, fake: list[dict[str, Any]]) -> None:
    made = experiment(parts, "simcse_en", "train.compile=on")
    one = stepper(made, [])
    one.take(0)
    assert fake == [], "the first step counts"
    one.take(1)
    one.take(2)
    assert {call["shape"] for call in fake} == {(2 * made.recipe.train.batch_size, made.recipe.data.max_length)}
    assert {call["mode"] for call in fake} == {"default"}
    before = len(fake)
    encoder = made.scored
    vocabulary = encoder.vocabulary
    encoder.encode_for_eval(vocabulary.pad(vocabulary.ids(["one two", "three"], 8)))
    assert len(fake) == before


@pytest.mark.slow
def test_a_copy_of_a_compiled_encoder_is_not_compiled(parts: Small, fake: list[dict[str, Any]]) -> None:
    made = experiment(parts, "simcse_en", "train.compile=on")
    one = stepper(made, [])
    losses(one)
    model: Any = made.scored
    assert compiled(model.backbone) is not None
    assert compiled(copy.deepcopy(model).backbone) is None


@pytest.mark.slow
def test_saving_knows_nothing_of_it(parts: Small, fake: list[dict[str, Any]], tmp_path: Path) -> None:
    from transformers import AutoModel

    made = experiment(parts, "simcse_en", "train.compile=on")
    losses(stepper(made, []))
    made.scored.export(tmp_path / "model", 32)
    again = AutoModel.from_pretrained(tmp_path / "model")
    own: Any = made.scored
    assert {"embeddings.word_embeddings.weight"} <= set(again.state_dict())
    torch.testing.assert_close(
        again.state_dict()["embeddings.word_embeddings.weight"], own.backbone.embeddings.word_embeddings.weight.detach()
    )


@pytest.mark.parametrize(
    ("setting", "device", "steps", "compiles"),
    [
        ("off", "cuda", 10_000, False),
        ("", "cuda", AUTO_STEPS, True),  # the default
        ("auto", "cuda", AUTO_STEPS, True),
        ("auto", "cuda", AUTO_STEPS - 1, False),
        ("auto", "cpu", 10_000, False),
        ("on", "cpu", 1, True),
    ],
)
def test_auto_compiles_where_it_pays(setting: Any, device: str, steps: int, compiles: bool, parts: Small) -> None:
    method = experiment(parts, "simcse_en").method
    compute = Compute(torch.device(device), "fp32")
    found = compile_blocks(method, Train(compile=setting) if setting else Train(), compute, (steps, 32), lambda _: None)
    assert (found is not None) == compiles


@pytest.mark.parametrize(("passes", "graphs"), [([1], True), ([2], False), ([1, 1], False)])
def test_one_pass_a_step_becomes_a_graph(passes: list[int], graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[None] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(None))
    blocks = [CompiledBlocks(None, 32, lambda _: None) for _ in passes]
    one = Compiled(blocks, graphs=True)
    one.begin_step()
    assert not any(each.active for each in blocks)
    for each, count in zip(blocks, passes, strict=True):
        each.passes = count
    one.begin_step()
    assert [each.graphs for each in blocks] == [graphs] * len(passes)
    assert all(each.active for each in blocks)
    assert len(begun) == int(graphs)
