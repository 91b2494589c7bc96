"""BSL as its recipe puts it together: the authors' values, the first step's loss, what is trained and what follows."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.recipe.load import load
from registry.resources import catalog
from tests.recipes.first_step import experiment, step_of
from tests.registry.heads.test_batch_norm_mlp import literal
from tests.registry.losses.literal import cosine


def test_warm_up_and_evaluation_are_tenths_of_the_epoch():
    """`unsupervised_tuning.py`; the number of sentences is that of our NLI."""
    train = load("bsl_en").recipe.train
    steps = catalog.entry("nli").splits["train"].rows // 64
    assert (train.warmup_steps, train.evaluate_every) == (math.ceil(steps * 0.1), int(steps * 0.1))


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    made = experiment(parts, "bsl_en")
    step = step_of(made)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
    vectors = {}
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        states = made.scored.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        vectors[view] = [row[real.bool()].mean(0).tolist() for row, real in zip(states, tokens.mask, strict=True)]
    predictor = made.scored.heads["predictor"]
    a, b = (literal(predictor, vectors[view]).tolist() for view in ("anchor", "positive"))
    total = 0.0
    for i in range(4):
        total += 2 - 2 * cosine(a[i], vectors["positive"][i]) + 2 - 2 * cosine(b[i], vectors["anchor"][i])
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 4, abs=1e-9)
