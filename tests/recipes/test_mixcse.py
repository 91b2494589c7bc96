"""MixCSE as its recipes put it together: which values, and the loss of a first step."""

from __future__ import annotations

import math

import pytest

from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.literal import cosine, mixtures


@pytest.mark.parametrize("name", ["mixcse_en", pytest.param("mini/mixcse_en", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mixed", ["all", "own"])
def test_the_first_step_by_hand(parts, name, mixed):
    made = experiment(parts, name, f"losses.mixed_info_nce.mixtures={mixed}")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    rows = step.views["anchor"].sentence.tolist()
    assert rows == step.views["positive"].sentence.tolist()  # no dropout: both views are alike
    total = 0.0
    for a, more in zip(rows, mixtures(mixed, rows, rows, 0.2, 0.05, normalize=False, off="zero"), strict=True):
        total += math.log(sum(math.exp(x) for x in [*(cosine(a, b) / 0.05 for b in rows), *more])) - 1 / 0.05
    assert found == pytest.approx(total / len(rows), abs=1e-6)
