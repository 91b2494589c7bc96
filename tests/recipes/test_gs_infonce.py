"""GS-InfoNCE as its recipes put it together: which values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, info_nce, step_of


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gs_infonce_en", pytest.param("mini/gs_infonce_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    noise = torch.randn(192, made.scored.dim, generator=torch.Generator().manual_seed(0)).double()
    rows = step.views["anchor"].sentence
    assert torch.equal(rows, step.views["positive"].sentence)  # no dropout: both views are alike
    assert found == pytest.approx(info_nce(rows, rows, 0.05, held=noise), abs=1e-6)
