"""miCSE as its recipes put it together: the authors' values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, headed, info_nce, step_of
from tests.registry.losses.test_attention_information import literal


@torch.no_grad()
def read_by_transformers(parts, made, tokens):
    """(n, D) what the losses compare, and block → (n, H, L, L) attention weights."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(parts.models["bert"], attn_implementation="eager").double().eval()
    found = network(tokens.ids, tokens.mask, tokens.types, output_attentions=True)
    states = found.last_hidden_state
    means = torch.stack([row[:n].mean(0) for row, n in zip(states, tokens.mask.sum(1).tolist(), strict=True)])
    return headed(made, states[:, 0] if made.scored.pooling == "cls" else means), found.attentions


@pytest.mark.slow
@pytest.mark.parametrize("name", ["micse_en", pytest.param("mini/micse_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_from_transformers_alone(parts, name):
    """The positive's tokens are put into the second segment, so that the views differ without dropout."""
    made = experiment(parts, name)
    step = step_of(made)
    step.batch["positive"].types.fill_(1)
    losses = made.method(step)
    (anchor, here), (positive, there) = (
        read_by_transformers(parts, made, step.batch[view]) for view in ("anchor", "positive")
    )
    groups = made.method.losses["attention_information"].layers
    expected = {
        "info_nce": info_nce(anchor, positive, 0.05),
        "attention_information": literal(here, there, groups, 0).item(),
    }
    assert {label: value.item() for label, value in losses.items()} == pytest.approx(expected, abs=1e-6)
    total = expected["info_nce"] + 5e-4 * expected["attention_information"]
    assert made.method.objective(losses).item() == pytest.approx(total, abs=1e-6)
