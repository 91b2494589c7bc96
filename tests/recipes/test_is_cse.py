"""IS-CSE as its recipes put it together: the authors' values, and the losses of the first steps."""

from __future__ import annotations

import math

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.losses.literal import unit
from tests.registry.losses.test_smoothed_info_nce import literal


def test_the_weight_is_constant_or_rises_as_the_authors_formula():
    assert load("is_cse_en").recipe.losses["smoothed_info_nce"].weight_schedule is None
    loss = load("is_cse_en_large").recipe.losses["smoothed_info_nce"]
    schedule = loss.weight_schedule
    assert schedule is not None
    for step in range(0, 1001, 50):
        theirs = min(0.05, math.cos(math.pi * step / 1000) * (0.005 - 0.05) + 0.05)
        assert schedule.at(loss.weight, step, 1000) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
def test_the_first_steps_by_hand(parts):
    made = experiment(parts, "is_cse_en", "losses.smoothed_info_nce.neighbors=3", "losses.smoothed_info_nce.buffer=6")
    layer, earlier = made.scored.heads["mlp"].linear, []
    for index in range(3):
        step = step_of(made, index)
        plain = (layers_of(parts, step.batch["anchor"])[0] @ layer.weight.T + layer.bias).tanh()
        contrast = info_nce(plain, plain, 0.05)  # without dropout both views are alike
        queue = [(entry, 1.0) for entry in earlier[-2:]]  # 6 entries with the 4 of the batch
        expected = literal(plain, plain, queue, 0.05, 3, 2.0) if index else 0.0
        losses = made.method(step)
        assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
        assert losses["smoothed_info_nce"].item() == pytest.approx(expected, abs=1e-6)
        assert made.method.objective(losses, step).item() == pytest.approx(contrast + 0.1 * expected, abs=1e-6)
        made.method.queue.after_step(step)
        earlier += [unit(row) for row in plain.tolist()]
