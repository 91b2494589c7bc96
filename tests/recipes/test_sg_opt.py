"""SG-OPT as its recipes put it together: which values, what is trained, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch

from registry.resources import catalog
from tests.recipes.first_step import experiment, layers_of, projected, step_of
from tests.registry.losses.test_self_guided import literal


def test_the_text_is_all_of_stsb():
    splits = catalog.entry("stsb").splits
    assert catalog.entry("stsb_text").splits["train"].rows == 2 * sum(splits[s].rows for s in ("train", "dev", "test"))


@pytest.mark.parametrize("name", ["sg_opt_en", pytest.param("mini/sg_opt_en", marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    losses = made.method(step)
    cls, means = layers_of(parts, step.batch["anchor"])
    c = cls if name == "sg_opt_en" else means[:, -1]
    head = made.scored.heads["feed_forward"]

    with torch.no_grad():
        anchors, guides = [projected(head, x) for x in c], [[projected(head, v) for v in own] for own in means]
    assert losses["self_guided"].item() == pytest.approx(literal(anchors, guides, 0.01), abs=1e-6)
    assert losses["stay_near"].item() == 0.0
