"""PromCSE as its recipes put it together: the authors' values, what is trained, the first step's loss."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, headed, info_nce, step_of
from tests.registry.encoders.test_prefixed import by_hand


@pytest.mark.parametrize("name", ["promcse_en_roberta", "promcse_en_roberta_large"])
def test_the_second_loss_fades_as_in_the_authors_code(name):
    """`promcse/trainers.py:116-119`: times 0.95^(step/100), over 1,000,000 sentences in batches of 64."""
    loss = load(name).recipe.losses["masked_language_modeling"]
    assert loss.weight_schedule is not None
    for step in range(0, 15_625, 125):
        theirs = 0.1 * 0.95 ** (step / 100)
        assert loss.weight_schedule.at(loss.weight, step, 15_625) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
def test_the_first_step_by_hand(parts):
    """Without any dropout both views are one."""
    made = experiment(parts, "promcse_en", "encoders.online.initial=0.5")
    step = step_of(made)
    tokens = step.batch["anchor"]
    with torch.no_grad():
        rows = [
            by_hand(made.scored, ids[mask == 1].tolist())[0] for ids, mask in zip(tokens.ids, tokens.mask, strict=True)
        ]
    vectors = headed(made, torch.stack(rows))
    assert made.method.objective(made.method(step)).item() == pytest.approx(info_nce(vectors, vectors, 0.05), abs=1e-9)
