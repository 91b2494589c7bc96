"""InforMin-CL as its recipes put it together: which values, and the losses of a first step."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine


@pytest.mark.parametrize(
    ("name", "rate"),
    [("informin_cl_en", 5e-5), ("informin_cl_en_roberta", 5e-5), ("informin_cl_en_roberta_large", 3e-5)],
)
def test_the_authors_script(name, rate):
    recipe = load(name).recipe
    train, loss = recipe.train, recipe.losses["alignment"]
    assert (train.batch_size, train.learning_rate, train.epochs, train.evaluate_every) == (128, rate, 1, 125)
    assert (loss.weight, loss.params) == (2.0, {"power": 2.0, "over": "dimensions"})
    assert recipe.losses["info_nce"].params["temperature"] == 0.05
    assert not recipe.encoders["online"].heads


def test_the_first_step_by_hand(parts):
    made = experiment(parts, "informin_cl_en")
    step = step_of(made)
    rows = layers_of(parts, step.batch["anchor"])[0].tolist()
    losses = made.method(step)
    contrast = sum(math.log(sum(math.exp(cosine(a, b) / 0.05) for b in rows)) - 1 / 0.05 for a in rows) / len(rows)
    assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
    assert losses["alignment"].item() == pytest.approx(0.0, abs=1e-12)  # no dropout: both views are alike


@pytest.mark.parametrize("name", ["informin_cl_en", "mini/informin_cl_en"])
def test_both_terms_of_the_paper_are_the_one_with_weight_two(parts, name):
    made = experiment(parts, name, "encoders.online.dropout=0.3")
    step = step_of(made)
    losses = made.method(step)
    a, b = (torch.nn.functional.normalize(step.views[view].sentence, dim=1) for view in ("anchor", "positive"))
    squares = [(x - y) ** 2 for r, s in zip(a.tolist(), b.tolist(), strict=True) for x, y in zip(r, s, strict=True)]
    both = 2 * sum(squares) / len(squares)
    assert (made.method.objective(losses) - losses["info_nce"]).item() == pytest.approx(both, abs=1e-9)
    assert both > 1e-4
