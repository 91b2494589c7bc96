"""Mirror-BERT as its recipes put it together: the authors' values, what a step sees, the first step's loss."""

from __future__ import annotations

import math

import pytest
import torch

from registry.resources import catalog
from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.literal import cosine

EVERY = "views.positive.augment.0.shortest=0"


def test_the_text_suffices_for_all_steps():
    assert catalog.entry("stsb_train_text").splits["train"].rows >= 50 * 200


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
    total = 0.0
    for i in range(8):
        below = sum(math.exp(cosine(vectors[i], vectors[j]) / 0.04) for j in range(8) if j != i)
        total -= cosine(vectors[i], vectors[(i + 4) % 8]) / 0.04 - math.log(below)
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 8, abs=1e-9)


def test_only_the_positive_has_a_mask(parts):
    made = experiment(parts, "mirror_bert_en", EVERY, dropout=None)
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    assert (batch["positive"].ids == mask).sum(1).tolist() == [1] * 4
    assert not (batch["anchor"].ids == mask).any()


def test_dropped_heads_are_all_that_differs_between_passes(parts):
    made = experiment(parts, "mirror_bert_drophead_en", "views.positive.augment=[]", dropout=None)
    step = step_of(made)
    made.method(step)
    anchor, positive = (step.views[view] for view in ("anchor", "positive"))
    assert torch.equal(anchor.embeddings, positive.embeddings)
    assert not torch.allclose(anchor.sentence, positive.sentence, atol=1e-4)
    made.method.eval()
    made.method(step)
    assert torch.allclose(step.views["anchor"].sentence, step.views["positive"].sentence, atol=1e-6)
