"""GCSE as its recipe puts it together: which values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.test_gaussian_info_nce import as_the_authors_code


@pytest.mark.slow
def test_the_first_step_by_the_authors_code(parts):
    """The student starts as the scorer, so that without repeated words every hard negative is decayed to 0."""
    made = experiment(parts, "gcse_en", "views.anchor.augment.0.rate=0.0")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    views = {name: view.sentence.detach() for name, view in step.views.items()}
    scored = F.cosine_similarity(views["reference"], views["reference_hard"]) / 0.05
    expected = as_the_authors_code(views["anchor"], views["positive"], views["hard"], scored, 0.17)
    assert found == pytest.approx(expected.item(), abs=1e-6)
    own = F.cosine_similarity(views["anchor"], views["hard"]) / 0.05
    assert own.tolist() == pytest.approx(scored.tolist(), abs=1e-6)
