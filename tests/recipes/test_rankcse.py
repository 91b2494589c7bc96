"""RankCSE as its recipes put it together: which values, frozen teachers, and the losses of a first step."""

from __future__ import annotations

import pytest

from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.losses.literal import ranking_distillation


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list_net", "list_mle"])
def test_the_first_step_by_hand(parts, form):
    """Dropout off: both views are alike, and the teachers are the same tiny model."""
    made = experiment(parts, f"rankcse_{form}_en")
    step = step_of(made)
    losses = {name: value.item() for name, value in made.method(step).items()}
    cls, _ = layers_of(parts, step.batch["anchor"])
    student = step.views["anchor"].sentence.detach()
    assert losses["info_nce"] == pytest.approx(info_nce(student, student, 0.05), abs=1e-6)
    assert losses["ranking_consistency"] == pytest.approx(0.0, abs=1e-6)
    ranking = ranking_distillation(form, student, student, (cls, cls), 0.05, 0.025, 0.33, form == "list_mle")
    assert losses["ranking_distillation"] == pytest.approx(ranking, abs=1e-6)
