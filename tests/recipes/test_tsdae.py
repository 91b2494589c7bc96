"""TSDAE as its recipes put it together: the authors' values, which view is damaged, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.test_reconstruction import as_transformers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tsdae_en", pytest.param("mini/tsdae_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_transformers(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    losses = made.method(step)
    damaged, whole = step.batch["damaged"], step.batch["whole"]
    assert bool((damaged.mask.sum(1) <= whole.mask.sum(1)).all())
    assert int(damaged.mask.sum()) < int(whole.mask.sum())
    cls, means = layers_of(parts, damaged)
    h = cls if name == "tsdae_en" else means[:, -1]
    model = as_transformers(made.scored, made.method.losses["reconstruction"])
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in range(4):
        ids = whole.ids[row][whole.mask[row] == 1]
        found = model(ids[None, :-1], encoder_hidden_states=h[row].view(1, 1, -1)).logits[0].log_softmax(-1)
        total, count = total - found.gather(1, ids[1:, None]).sum(), count + len(ids) - 1
    assert losses["reconstruction"].item() == pytest.approx(total.item() / count, abs=1e-6)
    assert made.method.objective(losses).item() == losses["reconstruction"].item()
