"""Supervised SimCSE and SynCSE as their recipes put them together: which values, and the loss of a first step."""

from __future__ import annotations

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, info_nce, step_of


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("sup_simcse_en", 5e-5), ("sup_simcse_en_large", 1e-5),
        ("sup_simcse_en_roberta", 5e-5), ("sup_simcse_en_roberta_large", 1e-5),
        ("syncse_partial_en_roberta", 5e-5), ("syncse_partial_en_roberta_large", 1e-5),
        ("syncse_scratch_en_roberta", 5e-5), ("syncse_scratch_en_roberta_large", 1e-5),
    ],
)  # fmt: skip
def test_the_authors_scripts(name, rate):
    recipe = load(name).recipe
    train, loss, syn = recipe.train, recipe.losses["info_nce"], name.startswith("syncse")
    assert (train.batch_size, train.learning_rate, train.epochs, train.clip_norm) == (512, rate, 3, 1.0)
    assert (train.evaluate_every, recipe.data.max_length) == (25 if syn else 125, 32)
    assert (loss.params["temperature"], loss.params["hard_weight"]) == (0.05, 0.0)
    assert loss.views["hard"] == "contradiction"
    assert recipe.encoders["online"].params["head_at_eval"] is True
    assert recipe.evaluate.metric_for_best_model == ("avg_dev.spearman" if syn else "stsb_dev.spearman")
    columns = [recipe.views[view].column for view in ("anchor", "positive", "contradiction")]
    hard = "nli_hard" if "scratch" in name else "hard_neg"
    assert columns == (["text", "sent1", hard] if syn else ["text", "positive", "negative"])


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
