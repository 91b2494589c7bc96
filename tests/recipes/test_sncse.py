"""SNCSE as its recipes put it together: the authors' values, what a step sees, the first step's loss."""

from __future__ import annotations

from random import Random

import pytest

from cse_cli.recipe.load import load
from registry.tokens import Sample
from registry.vocabulary import HubVocabulary
from tests.recipes.first_step import experiment, headed, info_nce, states_in_templates, step_of
from tests.registry.losses.literal import cosine

OTHER = 'views.{}.template="the {{text}} sees {{mask}} ."'


def test_32_places_leave_22_sub_words():
    """The authors count the template: 32 − 4 − 4 − 2, of whole words that the tokenizer knows."""
    recipe = load("sncse_en").recipe
    template = recipe.encoders["online"].params["template"]
    vocabulary = HubVocabulary("mini_en", template)
    tokens = vocabulary.pad(vocabulary.ids([" ".join(["cat"] * 60)], recipe.data.max_length))
    assert tokens.text is not None
    assert tokens.text.sum() == 22
    assert len(template.replace("{text}", "").split()) == 4 + 4


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "sncse_en", OTHER.format("positive"), OTHER.format("soft_negative"))
    step, mask = step_of(made), made.scored.vocabulary.mask
    anchor, positive, negated = (
        headed(made, states_in_templates(parts, step.batch[view], mask))
        for view in ("anchor", "positive", "soft_negative")
    )
    margin = 0.0
    for h, plus, minus in zip(anchor.tolist(), positive.tolist(), negated.tolist(), strict=True):
        difference = cosine(h, minus) - cosine(h, plus)
        margin += max(0.0, difference + 0.1) + max(0.0, -difference - 0.3)
    expected = info_nce(anchor, positive, 0.05) + 1e-3 * margin / 4
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["sncse_en_roberta", "sncse_en_roberta_large"])
def test_32_places_leave_21_sub_words_of_roberta(name):
    """The authors' first part ends in a lone "Ġ" (`train_SNCSE.py:490-504`): 32 − 5 − 4 − 2."""
    assert load(name).recipe.data.max_length - 2 == 32 - 5 - 4 - 2


@pytest.mark.slow
def test_each_view_ends_in_a_full_stop(parts):
    """`train_SNCSE.py:511-516`, for a sentence with final punctuation and one without."""
    plan = experiment(parts, "sncse_en").plans
    texts = {"anchor": "the cat sees", "positive": "the cat sees", "soft_negative": "Not the cat sees"}
    for view, text in texts.items():
        vocabulary = plan[view].vocabulary
        plain = HubVocabulary(vocabulary.model, vocabulary.template)
        pieces = plan[view].pieces(["the cat sees", "the cat is."], Random(0), Random(0), 32)
        whole = {"soft_negative": "the cat is not."}.get(view, "the cat is.")
        assert pieces == plain.pieces([Sample(f"{text} ."), Sample(whole)], 32)
