"""Supervised SimCSE and SynCSE as their recipes put them together: which values, and the loss of a first step."""

from __future__ import annotations

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, info_nce, step_of


@pytest.mark.parametrize("name", ["syncse_partial_en_roberta", "syncse_scratch_en_roberta_large"])
def test_the_script_of_syncse_masks_all_three_sentences(name):
    recipe = load(name).recipe
    hidden = recipe.losses["masked_language_modeling"]
    assert (hidden.weight, hidden.params["initial"], hidden.params["tied"]) == (0.1, "checkpoint", False)
    views = ["masked", *hidden.views["masked_again"]]
    read = [recipe.views[view].column for view in ("anchor", "positive", "contradiction")]
    assert [recipe.views[view].column for view in views] == read
    for view in views:
        (part,) = recipe.views[view].augment
        assert (part.params["rate"], part.params["mask_share"], part.params["random_share"]) == (0.15, 0.8, 0.1)


def test_the_first_step_by_hand(parts):
    made = experiment(parts, "sup_simcse_en")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    anchor, positive, hard = (step.views[name].sentence for name in ("anchor", "positive", "contradiction"))
    assert not anchor.allclose(hard)
    assert found == pytest.approx(info_nce(anchor, positive, 0.05, hard), abs=1e-6)
