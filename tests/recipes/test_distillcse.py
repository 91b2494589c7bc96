"""DistillCSE as its recipes put it together: which values, frozen teachers, and the loss of a first step."""

from __future__ import annotations

import pytest

from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import ranking_distillation


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "distillcse_plain_en")
    step = step_of(made)
    found = made.method(step)["group_distillation"].item()
    student = step.views["anchor"].sentence.detach()
    cls, _ = layers_of(parts, step.batch["anchor"])
    expected = ranking_distillation("list_net", student, student, (cls,), 0.025, 0.0125, 1.0)
    assert found == pytest.approx(expected, abs=1e-6)
