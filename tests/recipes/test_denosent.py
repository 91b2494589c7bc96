"""DenoSent as its recipe puts it together: the authors' values, and the first step's loss."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, info_nce, states_in_templates, step_of
from tests.registry.losses.decoder import literal

QUIET = ("losses.denoising.noise=0.0", "losses.denoising.dropout=0.0")


def test_the_authors_settings():
    """`model.py` and the README."""
    recipe = load("denosent_en").recipe
    encoder, train = recipe.encoders["online"], recipe.train
    assert (encoder.params["template"], encoder.params["pooling"]) == ('"{text}" means {mask}.', "mask")
    assert encoder.heads["pooler"].params == {"activation": "none", "initial": "random"}
    assert (train.learning_rate, train.schedule, train.warmup_steps) == (4e-5, "constant", 500)
    assert (train.batch_size, train.steps, train.evaluate_every) == (64, 5000, 50)
    assert recipe.evaluate.metric_for_best_model == "avg_dev.spearman"
    assert recipe.data.max_length == recipe.evaluate.max_length == 32
    denoising, contrast = recipe.losses["denoising"], recipe.losses["info_nce"]
    assert (contrast.weight, denoising.weight, contrast.params["temperature"]) == (5.0, 7.0, 0.05)
    assert {name: denoising.params[name] for name in ("layers", "attention_heads", "noise", "places")} == {
        "layers": 16, "attention_heads": 1, "noise": 0.825, "places": "all",
    }  # fmt: skip


def test_the_first_step_by_hand(parts):
    made = experiment(parts, "denosent_en", 'views.positive.template="the {text} sees {mask} ."', *QUIET)
    step, mask = step_of(made), made.scored.vocabulary.mask
    weight, bias, _ = made.scored.heads["pooler"].dense()
    anchor, positive = (
        states_in_templates(parts, step.batch[view], mask) @ weight.T + bias for view in ("anchor", "positive")
    )
    tokens, backbone = step.batch["positive"], made.scored.backbone
    with torch.no_grad():
        views = (backbone.embeddings(tokens.ids), tokens.ids, tokens.mask, tokens.text, anchor)
        loss = made.method.losses["denoising"]
        rebuilt = literal(loss, backbone.embeddings.word_embeddings.weight, views)
    expected = 5 * info_nce(anchor, positive, 0.05) + 7 * rebuilt
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-8)
