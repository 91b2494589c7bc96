"""GS-InfoNCE as its recipes put it together: which values, and the loss of a first step."""

from __future__ import annotations

import math

import pytest
import torch

from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.literal import cosine


@pytest.mark.parametrize("name", ["gs_infonce_en", "mini/gs_infonce_en"])
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    noise = torch.randn(192, made.scored.dim, generator=torch.Generator().manual_seed(0)).double().tolist()
    rows = step.views["anchor"].sentence.tolist()
    assert rows == step.views["positive"].sentence.tolist()  # no dropout: both views are alike
    total = 0.0
    for i, row in enumerate(rows):
        below = sum(math.exp(cosine(row, other) / 0.05) for other in [*rows, *noise])
        total -= (cosine(row, rows[i]) / 0.05 - math.log(below)) / len(rows)
    assert found == pytest.approx(total, abs=1e-6)
