"""SimCSE++ as its recipes put it together: the authors' values, what a step sees, the losses of a first step."""

from __future__ import annotations

import math

import pytest
import torch

from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.losses.test_decorrelation import correlation


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "simcse_pp_en")
    step = step_of(made)
    layer = made.scored.heads["mlp"].linear
    plain = (layers_of(parts, step.batch["anchor"])[0] @ layer.weight.T + layer.bias).tanh()
    contrast = info_nce(plain, plain, 0.05)  # without dropout all three views are alike
    c = correlation(plain.tolist(), plain.tolist())
    dimensions = sum(math.log(sum(math.exp(x / 5) for x in row)) - row[k] / 5 for k, row in enumerate(c)) / len(c)
    losses = made.method(step)
    assert losses["split_contrast"].item() == pytest.approx(contrast, abs=1e-6)
    assert losses["dimension_contrast"].item() == pytest.approx(dimensions, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(contrast + 0.1 * dimensions, abs=1e-6)


def test_only_the_third_view_has_no_dropout_and_it_is_trained(parts):
    made = experiment(parts, "simcse_pp_en", "encoders.online.dropout=0.5")
    step = step_of(made)
    losses = made.method(step)
    plain = made.scored.eval().encode(step.batch["undropped"], step.unperturbed["undropped"]).sentence
    vectors = {view: step.views[view].sentence for view in step.views}
    torch.testing.assert_close(vectors["undropped"], plain)
    assert not any(torch.allclose(vectors[view], plain, atol=0.01) for view in ("anchor", "positive"))
    (gradient,) = torch.autograd.grad(losses["split_contrast"], vectors["undropped"])
    assert gradient.any()
