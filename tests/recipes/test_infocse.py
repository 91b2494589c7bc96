"""InfoCSE as its recipes put it together: the authors' values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.recipes.first_step import experiment, info_nce, layers_of, step_of

HIDE_ALL = [f"losses.side_language_model.{key}" for key in ("masking=1.0", "mask_share=1.0", "random_share=0.0")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["infocse_en", pytest.param("mini/infocse_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_transformers(parts, name):
    made = experiment(parts, name, *HIDE_ALL, "losses.side_language_model.weight=0.5")
    step = step_of(made)
    losses = made.method(step)
    tokens = step.batch["anchor"]
    cls, means = layers_of(parts, tokens)
    h = cls if name == "infocse_en" else means[:, -1]
    rows = torch.cat([h, h])

    head = made.scored.heads["batch_norm_relu"].state_dict()
    x = rows @ head["layers.0.weight"].T
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() * head["norms.0.weight"] + head["norms.0.bias"]
    x = x.clamp(min=0) @ head["layers.1.weight"].T
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    contrast = info_nce(x[:4], x[4:], 0.05)
    assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)

    own = made.method.losses["side_language_model"]
    model = AutoModelForMaskedLM.from_pretrained(parts.models["bert"]).double().eval()
    total = torch.zeros(())
    for row in range(4):  # both copies are the same sentence: half of the rows is enough
        ids = tokens.ids[row][tokens.mask[row] == 1]
        hidden = torch.where((ids == 2) | (ids == 3), ids, 4).unsqueeze(0)
        states = model.bert.encoder.layer[0](model.bert.embeddings(input_ids=hidden)).clone()
        states[0, 0] = h[row]
        for block in own.trained.encoder.layer:
            states = block(states)
        scores = model.cls(states)[0, 1:-1].log_softmax(-1)
        total = total - scores.gather(1, ids[1:-1, None]).sum()
    side = total.item() / (int(tokens.mask.sum()) - 8)
    assert losses["side_language_model"].item() == pytest.approx(side, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(contrast + 0.5 * side, abs=1e-6)
