"""IS-BERT as its recipes put it together: which values, and what the first step computes."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from cse_cli.training.step import StepState


def test_the_authors_settings():
    """unsupervised_training_nli.py and the defaults of `fit`, copied by hand."""
    recipe = load("is_bert_en").recipe
    train = recipe.train
    assert (train.batch_size, train.learning_rate, train.epsilon, train.bias_correction) == (32, 2e-6, 1e-7, False)
    assert (train.weight_decay, train.clip_norm, train.epochs, train.evaluate_every) == (0.01, 1.0, 1, 1000)
    assert train.warmup_steps == round(275601 // 32 * 0.1)
    encoder = recipe.encoders["online"].params
    assert (encoder["windows"], encoder["channels"], encoder["pooling"]) == ([1, 3, 5], 256, "mean")
    assert recipe.data.dataset == ("nli",)


@pytest.mark.parametrize("name", ["is_bert_en", "mini/is_bert_en"])
def test_the_loss_of_the_first_step(parts, name):
    """By loops over tokens and sentences, from states that transformers computes sentence by sentence."""
    changed, dropped = parts.options(load(name).recipe)
    changed += ["encoders.online.dropout=0.0", "encoders.online.channels=3"]
    made = resolve(load(name, changed, dropped).recipe, 5)
    batch = Batches(open_text(made.recipe.data, made.columns), made.plans, 4, 64, 5).batch(0)
    made.method.double()
    losses = made.method(StepState(made.method, batch, 0, 3, torch.Generator().manual_seed(0)))

    encoder, tokens = made.scored, batch["anchor"]
    features = []
    for ids, mask in zip(tokens.ids, tokens.mask, strict=True):
        states = encoder.backbone(ids[mask == 1][None]).last_hidden_state[0].detach()
        edges = torch.zeros(2, states.shape[1], dtype=torch.float64)
        around, rows = torch.cat([edges, states, edges]), []
        for place in range(len(states)):
            row = []
            for conv, size in zip(encoder.convolutions.convs, (1, 3, 5), strict=True):
                window = around[place + 2 - size // 2 : place + 3 + size // 2]
                row += [(window.T * w).sum().item() + b.item() for w, b in zip(conv.weight, conv.bias, strict=True)]
            rows.append([max(0.0, value) for value in row])
        features.append(rows)
    means = [[sum(column) / len(rows) for column in zip(*rows, strict=True)] for rows in features]
    own = others = 0.0
    for i, rows in enumerate(features):
        for row in rows:
            for j, mean in enumerate(means):
                r = sum(a * b for a, b in zip(row, mean, strict=True))
                softplus = math.log(1 + math.exp(-r))
                own, others = (
                    (own + math.log(2) - softplus, others) if i == j else (own, others + softplus + r - math.log(2))
                )
    count = sum(map(len, features))
    assert list(losses) == ["jensen_shannon_information"]
    expected = others / (count * 3) - own / count
    assert losses["jensen_shannon_information"].item() == pytest.approx(expected, abs=1e-9)
