"""Mirror-BERT as its recipes put it together: the authors' values, what a step sees, the first step's loss."""

from __future__ import annotations

import pytest
import torch

from registry.resources import catalog
from tests.recipes.first_step import experiment, nt_xent, step_of

EVERY = "views.positive.augment.0.shortest=0"


def test_the_text_suffices_for_all_steps():
    assert catalog.entry("stsb_train_text").splits["train"].rows >= 50 * 200


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    """Rows padded to 50 tokens and the mean of all of them, as in `contrastive_learning.py`."""
    made = experiment(parts, "mirror_bert_en", EVERY)
    step = step_of(made)
    vectors = []
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        more = (0, 50 - tokens.length)
        ids, mask = (torch.nn.functional.pad(one, more, value=0) for one in (tokens.ids, tokens.mask))
        states = made.scored.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors += states.mean(1).tolist()
    expected = nt_xent(vectors[:4], vectors[4:], 0.04)
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)


def test_only_the_positive_has_a_mask(parts):
    made = experiment(parts, "mirror_bert_en", EVERY, dropout=None)
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    assert (batch["positive"].ids == mask).sum(1).tolist() == [1] * 4
    assert not (batch["anchor"].ids == mask).any()
