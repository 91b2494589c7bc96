"""IS-BERT as its recipes put it together: which values, and what the first step computes."""

from __future__ import annotations

import math

import pytest
import torch

from tests.recipes.first_step import experiment, step_of
from tests.registry.encoders.test_convolutional import features_of


def literal(encoder, tokens):
    """MutualInformationLoss.py by loops over tokens and sentences, each sentence encoded without padding."""
    states = (encoder.backbone(i[m == 1][None]) for i, m in zip(tokens.ids, tokens.mask, strict=True))
    features = [features_of(encoder, one.last_hidden_state[0].detach()) for one in states]
    means = [rows.sum(0) / len(rows) for rows in features]
    own = others = torch.zeros((), dtype=torch.float64)
    for i, rows in enumerate(features):
        for row in rows:
            for j, mean in enumerate(means):
                r = (row * mean).sum()
                softplus = (1 + (-r).exp()).log()
                if i == j:
                    own = own + math.log(2) - softplus
                else:
                    others = others + softplus + r - math.log(2)
    count = sum(map(len, features))
    return others / (count * (len(means) - 1)) - own / count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["is_bert_en", pytest.param("mini/is_bert_en", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("activation", ["", "relu"])
def test_the_loss_and_its_gradient_in_the_first_step(parts, name, activation):
    """The default is the authors' code, which has no activation. "relu" is the paper."""
    changed = [f"encoders.online.activation={activation}"] if activation else []
    made = experiment(parts, name, "encoders.online.channels=3", *changed)
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["jensen_shannon_information"]
    value = losses["jensen_shannon_information"]
    weights = list(made.scored.convolutions.parameters())
    expected = literal(made.scored, step.batch["anchor"])
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    pairs = zip(torch.autograd.grad(value, weights), torch.autograd.grad(expected, weights), strict=True)
    for mine, theirs in pairs:
        assert (mine - theirs).norm() <= 1e-9 * theirs.norm()
