"""GCSE as its recipe puts it together: which values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.test_gaussian_info_nce import as_the_authors_code


def test_the_authors_code():
    recipe = load("gcse_en").recipe
    train, loss = recipe.train, recipe.losses["gaussian_info_nce"].params
    assert (train.batch_size, train.learning_rate, train.epochs, train.evaluate_every) == (128, 1e-5, 2, 125)
    assert (train.optimizer, train.warmup_steps, train.clip_norm, recipe.data.max_length) == ("adam", 190, 0.0, 64)
    assert loss == {"temperature": 0.05, "width": 0.17}
    student, scorer = (recipe.encoders[name] for name in ("online", "scorer"))
    assert student.params["model"] == scorer.params["model"]
    assert (student.params["head_at_eval"], scorer.params["dropout"]) == (False, 0.0)
    (repeated,) = recipe.views["anchor"].augment
    assert (repeated.params["rate"], repeated.params["unit"]) == (0.05, "word")
    assert {name: view.column for name, view in recipe.views.items()} == {
        "anchor": "text", "positive": "sent1", "hard": "hard_neg", "reference": "text", "reference_hard": "hard_neg",
    }  # fmt: skip


def test_the_first_step_by_the_authors_code(parts):
    """The student starts as the scorer, so that without repeated words every hard negative is decayed to 0."""
    made = experiment(parts, "gcse_en", "views.anchor.augment.0.rate=0.0")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    views = {name: view.sentence.detach() for name, view in step.views.items()}
    scored = F.cosine_similarity(views["reference"], views["reference_hard"]) / 0.05
    expected = as_the_authors_code(views["anchor"], views["positive"], views["hard"], scored, 0.17)
    assert found == pytest.approx(expected.item(), abs=1e-6)
    own = F.cosine_similarity(views["anchor"], views["hard"]) / 0.05
    assert own.tolist() == pytest.approx(scored.tolist(), abs=1e-6)
