"""DenoSent as its recipe puts it together: the authors' values, and the first step's loss."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, info_nce, states_in_templates, step_of
from tests.registry.losses.decoder import literal

QUIET = ("losses.denoising.noise=0.0", "losses.denoising.dropout=0.0")


@pytest.mark.slow
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
