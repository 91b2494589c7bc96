"""ArcCSE as its recipes put it together: which values, what a step sees, and the losses of a first step."""

from __future__ import annotations

import math

import pytest

from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine


def test_the_masked_spans_of_a_step_are_nested(parts):
    made = experiment(parts, "arccse_en")
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    plain, near, far = (batch[view].ids for view in ("anchor", "near", "far"))
    sizes = batch["anchor"].mask.sum(1) - 2  # [CLS] and [SEP]
    for ids, rate in ((near, 0.2), (far, 0.4)):
        assert (ids == mask).sum(1).tolist() == [int(rate * n + 0.5) for n in sizes.tolist()]
        assert bool(((ids == plain) | (ids == mask)).all())
    assert bool(((near != mask) | (far == mask)).all())
    assert (far == mask).sum() > (near == mask).sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arccse_en", pytest.param("mini/arccse_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    losses = made.method(step)
    states = {}
    for view in ("anchor", "near", "far"):
        cls, means = layers_of(parts, step.batch[view])
        vectors = means[:, -1] if name.startswith("mini/") else cls
        states[view] = made.scored.project(vectors).tolist()
    a = states["anchor"]
    total = 0.0  # no dropout: the positive's angle is 0, and 10° with the margin
    for i, row in enumerate(a):
        logits = [math.cos(math.radians(10)) / 0.05 if j == i else cosine(row, b) / 0.05 for j, b in enumerate(a)]
        total += (math.log(sum(map(math.exp, logits))) - logits[i]) / len(a)
    assert losses["info_nce"].item() == pytest.approx(total, abs=1e-6)
    gaps = [
        cosine(row, far) - cosine(row, near) for row, near, far in zip(a, states["near"], states["far"], strict=True)
    ]
    assert losses["ordering"].item() == pytest.approx(sum(max(0.0, gap) for gap in gaps) / len(a), abs=1e-6)
