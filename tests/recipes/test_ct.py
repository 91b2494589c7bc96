"""CT as its recipe puts it together: the authors' values, the first step's loss, and twins that part."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.optimizer import LearningRate
from cse_cli.training.step import StepState
from tests.support.shrunken import Small

MILESTONES = (501, 1001, 1501, 2001)


def experiment(parts: Small, *more: str) -> Experiment:
    changed, dropped = parts.options(load("ct_en").recipe)
    return resolve(load("ct_en", [*changed, *more], dropped).recipe, 5)


def step_of(made: Experiment, rows: int) -> StepState:
    batches = Batches(open_text(made.recipe.data, made.columns), made.plans, rows, 64, 5)
    return StepState(made.method, batches.batch(0), 0, 3, torch.Generator().manual_seed(0))


def test_the_authors_settings():
    """`Training.py` and `ContrastiveTensionModel.py`, copied by hand."""
    recipe = load("ct_en").recipe
    train, loss = recipe.train, recipe.losses["dot_classification"].params
    assert (train.batch_size, train.optimizer, train.learning_rate, train.clip_norm) == (16, "rmsprop", 1e-5, 0)
    assert (train.milestones, train.learning_rates) == (MILESTONES, (8e-6, 6e-6, 4e-6, 2e-6))
    assert loss == {"negatives": 7, "pairs": "separate", "reduction": "mean"}
    assert recipe.data.max_length == 75
    assert [e.params["dropout"] for e in recipe.encoders.values()] == [0.0, 0.0]


def test_rates_are_those_of_the_code():
    """Keras' PiecewiseConstantDecay: the first value up to and including the first boundary, with steps from 0."""
    train = load("ct_en").recipe.train
    for step in (0, 499, 500, 501, 999, 1000, 1001, 1500, 1501, 2000, 2001, 49999):
        passed = sum(step > boundary for boundary in (500, 1000, 1500, 2000))
        assert LearningRate(train, 50000)(step) == (1e-5, 8e-6, 6e-6, 4e-6, 2e-6)[passed]


def test_the_first_step_by_hand(parts):
    """16 sentences, 2 of them in positive pairs; the twins are still one, so that each meets its own vector."""
    made = experiment(parts, "train.batch_size=16")
    made.method.train()
    step = step_of(made, 16)
    tokens = step.batch["anchor"]
    states = made.scored.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    vectors = [row[real.bool()].mean(0).tolist() for row, real in zip(states, tokens.mask, strict=True)]
    pairs = [(0, 0), (1, 1), *((i, i + 1 if i < 15 else 2) for i in range(2, 16))]
    values = []
    for i, j in pairs:
        dot = sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True))
        values.append(math.log1p(math.exp(-dot)) if i == j else math.log1p(math.exp(-abs(dot))) + max(dot, 0.0))
    losses = made.method(step)
    assert made.method.objective(losses).item() == pytest.approx(sum(values) / 16, rel=1e-6)


def test_the_twins_start_alike_and_part(parts):
    made = experiment(parts)
    first, second = (made.method.encoder(name) for name in ("first", "second"))
    assert made.scored is first
    weights = [dict(each.named_parameters()) for each in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not {id(w) for w in weights[0].values()} & {id(w) for w in weights[1].values()}
    made.method.objective(made.method(step_of(made, 4))).backward()
    optimizer = torch.optim.RMSprop(made.method.parameters(), lr=1e-3)
    optimizer.step()
    name = "backbone.encoder.layer.1.output.dense.weight"
    assert not torch.equal(weights[0][name], weights[1][name])


def test_the_other_twin_can_be_scored(parts):
    made = experiment(parts, "evaluate.encoder=second")
    assert made.scored is made.method.encoder("second")
