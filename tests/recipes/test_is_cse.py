"""IS-CSE as its recipes put it together: the authors' values, and the losses of the first steps."""

from __future__ import annotations

import math

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine
from tests.registry.losses.test_smoothed_info_nce import literal, unit


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("is_cse_en", (64, 3e-5, "fp32")),
        ("is_cse_en_large", (64, 1e-5, "auto")),
        ("is_cse_en_roberta", (512, 1e-5, "fp32")),
        ("is_cse_en_roberta_large", (512, 3e-5, "auto")),
    ],
)
def test_the_authors_scripts(name, values):
    """`run_unsup_*.sh` and the numbers in `models.py`, copied by hand."""
    recipe = load(name).recipe
    train, smoothed = recipe.train, recipe.losses["smoothed_info_nce"]
    assert (train.batch_size, train.learning_rate, train.precision) == values
    assert (train.epochs, train.evaluate_every, recipe.data.max_length) == (1, 125, 32)
    assert smoothed.params == {"temperature": 0.05, "neighbors": 16, "attention_temperature": 2.0, "buffer": 1024}
    assert recipe.queue is not None
    assert recipe.queue.params["length"] == smoothed.params["buffer"]
    assert not recipe.losses["info_nce"].queue


def test_the_weight_is_constant_or_rises_as_the_authors_formula():
    assert load("is_cse_en").recipe.losses["smoothed_info_nce"].weight_schedule is None
    loss = load("is_cse_en_large").recipe.losses["smoothed_info_nce"]
    schedule = loss.weight_schedule
    assert schedule is not None
    for step in range(0, 1001, 50):
        theirs = min(0.05, math.cos(math.pi * step / 1000) * (0.005 - 0.05) + 0.05)
        assert schedule.at(loss.weight, step, 1000) == pytest.approx(theirs, abs=1e-12)


def test_the_first_steps_by_hand(parts):
    made = experiment(parts, "is_cse_en", "losses.smoothed_info_nce.neighbors=3", "losses.smoothed_info_nce.buffer=6")
    layer, earlier = made.scored.heads["mlp"].linear, []
    for index in range(3):
        step = step_of(made, index)
        plain = (layers_of(parts, step.batch["anchor"])[0] @ layer.weight.T + layer.bias).tanh()
        rows, contrast = plain.tolist(), 0.0  # without dropout both views are alike
        for i, row in enumerate(rows):
            below = sum(math.exp(cosine(row, other) / 0.05) for other in rows)
            contrast -= math.log(math.exp(cosine(row, rows[i]) / 0.05) / below) / 4
        queue = [(entry, 1.0) for entry in earlier[-2:]]  # 6 entries with the 4 of the batch
        expected = literal(plain, plain, queue, 0.05, 3, 2.0) if index else 0.0
        losses = made.method(step)
        assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
        assert losses["smoothed_info_nce"].item() == pytest.approx(expected, abs=1e-6)
        assert made.method.objective(losses, step).item() == pytest.approx(contrast + 0.1 * expected, abs=1e-6)
        made.method.queue.after_step(step)
        earlier += [unit(row) for row in rows]
