"""VaSCL as its recipes put it together: which values, and the losses of a first step."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, layers_of, nt_xent, step_of
from tests.registry.losses.neighborhood import both_ways, hardest, moved_by, neighbors, project, unit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vascl_en", pytest.param("mini/vascl_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    torch.manual_seed(9)
    losses = made.method(step)
    torch.manual_seed(9)
    first = [unit([x - 0.5 for x in row]) for row in torch.rand(4, 16, dtype=torch.float64).tolist()]
    rows = layers_of(parts, step.batch["anchor"])[1][:, -1].tolist()
    plain = project(made.scored, rows)
    # Without dropout both views are alike.
    assert losses["nt_xent"].item() == pytest.approx(nt_xent(plain, plain, 0.05), abs=1e-6)
    near, epsilon = neighbors(rows, 3), 1.0 if name.startswith("mini/") else 15.0
    moved = project(made.scored, moved_by(rows, hardest(made.scored, rows, first, near, epsilon, 0.05), epsilon))
    assert losses["virtual_neighbors"].item() == pytest.approx(both_ways(plain, moved, near, 0.05), abs=1e-6)
