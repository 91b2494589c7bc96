"""Contrastive (BT): SG-OPT's settings with a back-translation as the other view, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, info_nce, layers_of, projected, step_of


@pytest.mark.parametrize("version", ["", "_large", "_roberta", "_roberta_large"])
def test_settings_are_those_of_sg_opt(version):
    ours, other = (load(f"{name}_en{version}").recipe for name in ("contrastive_bt", "sg_opt"))
    assert ours.train == other.train
    assert ours.encoders["online"].heads == other.encoders["online"].heads
    assert dict(ours.encoders["online"].params) == {**dict(other.encoders["online"].params), "freeze": []}
    assert (list(ours.encoders), ours.views["positive"].column) == (["online"], "translation")


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "contrastive_bt_en")
    step = step_of(made)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
    head = made.scored.heads["feed_forward"]

    with torch.no_grad():
        states = (layers_of(parts, step.batch[view])[0] for view in ("anchor", "positive"))
        a, b = (torch.tensor([projected(head, x) for x in rows], dtype=torch.float64) for rows in states)
    assert made.method(step)["info_nce"].item() == pytest.approx(info_nce(a, b, 0.05), abs=1e-6)
