"""WhitenedCSE as its recipes put it together: the authors' values, and the loss of a first step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.heads.test_group_whitening import literal


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whitenedcse_en", pytest.param("mini/whitenedcse_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_numpy(parts, name):
    settings = "encoders.online.heads.group_whitening."
    made = experiment(parts, name, f"{settings}groups=4", f"{settings}epsilon=0.01")
    step = step_of(made)
    cls, means = layers_of(parts, step.batch["anchor"])
    torch.manual_seed(7)
    losses = made.method(step)
    torch.manual_seed(7)
    pooled = (cls if name == "whitenedcse_en" else means[:, -1]).numpy()
    orders = [torch.rand(16).argsort().tolist() for _ in range(3)]
    weight, bias, _ = made.scored.heads["mlp"].dense()
    weight, bias = weight.detach().numpy(), bias.detach().numpy()
    thirds = np.split(pooled.repeat(3, axis=0), 3)  # the three copies of a sentence are next to each other
    white = np.concatenate([literal(third, 4, order, 0.01) for third, order in zip(thirds, orders, strict=True)])
    anchor, first, second = (torch.from_numpy(np.tanh(white[copy::3] @ weight.T + bias)) for copy in range(3))
    expected = {"first": info_nce(anchor, first, 0.05), "second": info_nce(anchor, second, 0.05)}
    assert {label: value.item() for label, value in losses.items()} == pytest.approx(expected, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(sum(expected.values()), abs=1e-6)
