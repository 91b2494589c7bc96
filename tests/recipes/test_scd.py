"""SCD as its recipes put it together: the authors' values, what a step sees, the losses of a first step."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine
from tests.registry.losses.test_decorrelation import correlation

NARROW = "encoders.online.heads.projector.widths=[6,7,5]"


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "scd_en", NARROW, "views.positive.dropout=0.0")
    step = step_of(made)
    plain = layers_of(parts, step.batch["anchor"])[0]  # without dropout both views are alike
    projected = plain
    for place, layer in enumerate(made.scored.heads["projector"].layers):
        projected = projected @ layer.weight.T
        if place < 2:
            deviation = (projected.var(0, unbiased=False) + 1e-5).sqrt()
            projected = ((projected - projected.mean(0)) / deviation).clamp(min=0)
    c = correlation(projected.tolist(), projected.tolist())
    same = sum((c[k][k] - 1) ** 2 for k in range(5))
    different = sum(c[k][m] ** 2 for k in range(5) for m in range(5) if k != m)
    losses = made.method(step)
    assert losses["similarity"].item() == pytest.approx(1 / 0.05, abs=1e-6)
    assert losses["decorrelation"].item() == pytest.approx(same + 0.012 * different, abs=1e-6)
    expected = 1 / 0.05 + 0.005225 * (same + 0.012 * different)
    assert made.method.objective(losses).item() == pytest.approx(expected, abs=1e-6)


def test_views_differ_by_rate_and_repulsion_skips_projector(parts):
    made = experiment(parts, "scd_en", NARROW, "views.positive.dropout=0.9")
    step = step_of(made)
    losses = made.method(step)
    anchor, positive = (step.views[view] for view in ("anchor", "positive"))
    assert torch.equal(anchor.embeddings, step.unperturbed["anchor"])  # its rate is 0 here
    assert (positive.embeddings == 0).double().mean() == pytest.approx(0.9, abs=0.05)
    rows = zip(anchor.before_heads.tolist(), positive.before_heads.tolist(), strict=True)
    assert losses["similarity"].item() == pytest.approx(sum(cosine(a, b) for a, b in rows) / 4 / 0.05, abs=1e-6)
    losses["similarity"].backward()
    assert all(p.grad is None for p in made.scored.heads.parameters())
