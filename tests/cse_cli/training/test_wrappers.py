"""A recipe whose loss computes another one: its terms, its inputs and its value in a step."""

from __future__ import annotations

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from cse_cli.training.method import StepState
from registry.losses.cosent import CoSENT
from tests.support.tiny import sentences, tiny_bert

RECIPE = """
extends = "mini/simcse_en"
remove = ["losses.info_nce", "data.dataset"]
title = "2D Matryoshka of CoSENT"

[data]
file = "{file}"

[views.positive]
column = "second"

[losses.cosent]
column = "rating"
temperature = 0.5
[losses.matryoshka]
of = "cosent"
widths = [4, 16]
weights = [0.5, 1.0]
[losses.adaptive_layers]
of = "matryoshka"
alignment_weight = 0.0
weight = 0.25
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_widths_and_layers_of_a_loss_with_labels(tmp_path, form):
    texts, file = sentences(16), tmp_path / f"pairs.{form}"
    rows = [(texts[i], texts[8 + i], i % 3) for i in range(8)]
    if form == "csv":
        file.write_text("text,second,rating\n" + "".join(f'"{a}","{b}",{y}\n' for a, b, y in rows))
    else:
        file.write_text("".join(f'{{"text": "{a}", "second": "{b}", "rating": {y}}}\n' for a, b, y in rows))
    path = tmp_path / "own.toml"
    path.write_text(RECIPE.format(file=file))
    changes = [f"encoders.online.model={tiny_bert(tmp_path, layers=3)}", "encoders.online.dropout=0.0"]
    made = resolve(load(str(path), changes).recipe, 5)
    made.method.train()
    batches = Batches(open_text(made.recipe.data, made.columns), made.specs, 4, 64, 5)
    step = StepState(made.method, batches.batch(0), 0, 3, torch.Generator())
    losses = made.method(step)
    assert set(losses) == {"adaptive_layers"}
    labels = torch.tensor([rows[row][2] for row in batches.indices(0)]).float()
    layers = [made.scored.project(step.views[name].layers) for name in ("anchor", "positive")]
    assert layers[0].shape == (4, 3, 16)
    at = [
        sum(
            weight * CoSENT(temperature=0.5)(layers[0][:, layer, :width], layers[1][:, layer, :width], labels)
            for width, weight in ((4, 0.5), (16, 1.0))
        )
        for layer in range(3)
    ]
    expected = at[2] + (at[0] + at[1]) / 2
    assert losses["adaptive_layers"].item() == pytest.approx(expected.item(), abs=1e-5)
    assert made.method.objective(losses).item() == pytest.approx(0.25 * expected.item(), abs=1e-5)
