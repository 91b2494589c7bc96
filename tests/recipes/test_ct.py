"""CT as its recipe puts it together: the authors' values, the first step's loss, and twins that part."""

from __future__ import annotations

import math

import pytest

from cse_cli.recipe.load import load
from cse_cli.training.optimizer import LearningRate
from tests.recipes.first_step import experiment, step_of


def test_rates_are_those_of_the_code():
    """Keras' PiecewiseConstantDecay: the first value up to and including the first boundary, with steps from 0."""
    train = load("ct_en").recipe.train
    for step in (0, 499, 500, 501, 999, 1000, 1001, 1500, 1501, 2000, 2001, 49999):
        passed = sum(step > boundary for boundary in (500, 1000, 1500, 2000))
        assert LearningRate(train, 50000)(step) == (1e-5, 8e-6, 6e-6, 4e-6, 2e-6)[passed]


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    """16 sentences, 2 of them in positive pairs; the twins are still one, so that each meets its own vector."""
    made = experiment(parts, "ct_en", "train.batch_size=16", dropout=None)
    step = step_of(made, rows=16)
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
