"""PromptBERT as its recipes put it together: the authors' values, and the first step's loss."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from registry.vocabulary import HubVocabulary
from tests.recipes.first_step import experiment, headed, info_nce, states_in_templates, step_of

BERT = ('This sentence of "{text}" means {mask}.', 'This sentence : "{text}" means {mask}.')
ROBERTA = ("This sentence : ' {text} ' means {mask}.", "The sentence : ' {text} ' means {mask}.")


@pytest.mark.parametrize(
    ("name", "templates", "rate"),
    [
        ("promptbert_en", BERT, 1e-5),
        ("promptbert_en_large", BERT, 3e-5),
        ("promptbert_en_roberta", ROBERTA, 1e-5),
        ("promptbert_en_roberta_large", ROBERTA, 1e-5),
    ],
)
def test_the_authors_settings(name, templates, rate):
    """`run.sh`, and issue 3 for BERT large."""
    recipe = load(name).recipe
    encoder, views = recipe.encoders["online"].params, recipe.views
    assert (encoder["template"], views["anchor"].template, views["positive"].template) == (
        templates[0],
        None,
        templates[1],
    )
    assert (encoder["pooling"], encoder["denoise"]) == ("mask", "positions")
    assert not encoder.get("denoise_at_eval")
    assert (encoder["end_with"], encoder.get("end_in_training")) == ("stop", None)  # `evaluation.py:201`
    train = recipe.train
    assert (train.batch_size, train.learning_rate, train.epochs, train.evaluate_every) == (256, rate, 1, 125)
    assert recipe.losses["info_nce"].params["temperature"] == 0.05


def test_the_text_is_cut_to_32_word_pieces():
    recipe = load("promptbert_en").recipe
    vocabulary = HubVocabulary("mini_en", recipe.encoders["online"].params["template"])
    tokens = vocabulary.pad(vocabulary.ids([" ".join(["cat"] * 60)], recipe.data.max_length))
    assert tokens.text is not None
    assert tokens.text.sum() == 32


def test_the_untrained_row_is_scored_alone():
    recipe = load("bert_prompt_en").recipe
    encoder = recipe.encoders["online"].params
    assert (recipe.train.steps, recipe.views, recipe.losses) == (0, {}, {})
    assert (encoder["template"], encoder["pooling"], encoder.get("denoise")) == (BERT[1], "mask", None)
    assert encoder["end_with"] == "stop"


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
