"""PromptBERT as its recipes put it together: the authors' values, and the first step's loss."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from registry.vocabulary import HubVocabulary
from tests.recipes.first_step import experiment, headed, info_nce, states_in_templates, step_of


def test_the_text_is_cut_to_32_word_pieces():
    recipe = load("promptbert_en").recipe
    vocabulary = HubVocabulary("mini_en", recipe.encoders["online"].params["template"])
    tokens = vocabulary.pad(vocabulary.ids([" ".join(["cat"] * 60)], recipe.data.max_length))
    assert tokens.text is not None
    assert tokens.text.sum() == 32


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "promptbert_en", 'views.positive.template="the {text} sees {mask} ."')
    step, mask = step_of(made), made.scored.vocabulary.mask
    vectors = {
        view: headed(made, states_in_templates(parts, step.batch[view], mask, "positions"))
        for view in ("anchor", "positive")
    }
    expected = info_nce(vectors["anchor"], vectors["positive"], 0.05)
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
