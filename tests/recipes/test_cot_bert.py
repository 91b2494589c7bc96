"""CoT-BERT as its recipes put it together: the authors' values, and the first step's loss."""

from __future__ import annotations

import math

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, headed, states_in_templates, step_of
from tests.registry.losses.literal import cosine


@pytest.mark.parametrize(("name", "quoted"), [("cot_bert_en", '"{text}"'), ("cot_bert_en_roberta", "' {text} '")])
def test_the_authors_settings(name, quoted):
    """`train.py` and the ReadMe."""
    recipe = load(name).recipe
    encoder, views, train = recipe.encoders["online"].params, recipe.views, recipe.train
    assert encoder["template"] == f"The sentence of {quoted} means {{mask}} , so it can be summarized as {{mask}} ."
    assert views["positive"].template == encoder["template"].replace(" of ", " : ", 1)
    negated = f"The sentence : {quoted} does not mean {{mask}} , so it cannot be summarized as {{mask}} ."
    assert views["hard"].template == negated
    assert (encoder["pooling"], encoder["denoise"], encoder.get("denoise_at_eval")) == ("last_mask", "padding", None)
    assert (encoder["end_with"], encoder.get("end_in_training")) == ("stop", None)  # `evaluation.py:227`
    assert (train.batch_size, train.learning_rate, train.epochs, train.seed) == (128, 1e-5, 1, 0)
    loss = recipe.losses["info_nce"].params
    assert (loss["temperature"], loss["positive_repels"], loss["hard_weight"]) == (0.05, True, 0.0)


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "cot_bert_en", 'views.positive.template="the {text} {mask} sees {mask} ."')
    step, mask = step_of(made), made.scored.vocabulary.mask
    anchor, positive, hard = (
        headed(made, states_in_templates(parts, step.batch[view], mask, "padding", last=True)).tolist()
        for view in ("anchor", "positive", "hard")
    )
    total = 0.0
    for i, (h, plus) in enumerate(zip(anchor, positive, strict=True)):
        pairs = [(h, other) for other in positive] + [(query, other) for query in (h, plus) for other in hard]
        logits = [cosine(*pair) / 0.05 for pair in pairs]
        total -= logits[i] - math.log(sum(map(math.exp, logits)))
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 4, abs=1e-9)
