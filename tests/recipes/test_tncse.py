"""TNCSE as its recipes put it together: which values, the five losses of a first step, and the sum in evaluation."""

from __future__ import annotations

import pytest

from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.test_cross_contrast import as_the_authors_code as contrast
from tests.registry.losses.test_cross_contrast import interleaved
from tests.registry.losses.test_tensor_norm import as_the_authors_code as norm


@pytest.mark.slow
def test_the_first_step_by_the_authors_code(parts):
    """Two encoders that differ: the rows of both copies, before and after the poolers, in the authors' functions."""
    made = experiment(parts, "tncse_en", "encoders.first.dropout=0.1", "encoders.second.dropout=0.1", dropout=None)
    step = step_of(made)
    losses = made.method(step)
    views = {name: (view.before_heads.detach(), view.sentence.detach()) for name, view in step.views.items()}
    first, second = (
        [interleaved(views[name][k], views[f"{name}_again"][k]) for k in (0, 1)] for name in ("first", "second")
    )
    expected = {
        "first_contrast": contrast(first[0], first[0], 0.05),
        "second_contrast": contrast(second[0], second[0], 0.05),
        "cross_contrast": contrast(first[0], second[0], 0.05),
        "first_norm": norm(first[0], second[0], first[1], second[1]),
        "second_norm": norm(second[0], first[0], second[1], first[1]),
    }
    assert {name: value.item() for name, value in losses.items()} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, abs=1e-6
    )
