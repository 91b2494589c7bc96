"""SG-OPT as its recipes put it together: which values, what is trained, and the loss of a first step."""

from __future__ import annotations

import math

import pytest
import torch

from registry.resources import catalog
from tests.recipes.first_step import experiment, layers_of, projected, step_of
from tests.registry.losses.literal import cosine


def test_the_text_is_all_of_stsb():
    splits = catalog.entry("stsb").splits
    assert catalog.entry("stsb_text").splits["train"].rows == 2 * sum(splits[s].rows for s in ("train", "dev", "test"))


@pytest.mark.parametrize("name", ["sg_opt_en", "mini/sg_opt_en"])
@pytest.mark.slow
def test_the_first_step_by_hand(parts, name):
    made = experiment(parts, name)
    step = step_of(made)
    losses = made.method(step)
    cls, means = layers_of(parts, step.batch["anchor"])
    c = cls if name == "sg_opt_en" else means[:, -1]
    head = made.scored.heads["feed_forward"]

    with torch.no_grad():
        anchors, guides = [projected(head, x) for x in c], [[projected(head, v) for v in own] for own in means]
    total = 0.0
    for i, anchor in enumerate(anchors):
        other = sum(math.exp(cosine(anchor, v) / 0.01) for j in range(4) if j != i for v in guides[j])
        positives = [math.exp(cosine(anchor, v) / 0.01) for v in guides[i]]
        total -= sum(math.log(p / (p + other)) for p in positives) / len(positives) / 4
    assert losses["self_guided"].item() == pytest.approx(total, abs=1e-6)
    assert losses["stay_near"].item() == 0.0


@pytest.mark.parametrize("name", ["sg_opt_en", "mini/sg_opt_en"])
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.slow
def test_the_copy_drops_out_as_in_the_authors_code(parts, name, dropout):
    """SG6: their copy is a sub-module of the loss, which `fit` sets to training mode."""
    made = experiment(parts, name, "encoders.online.dropout=0.5", f"encoders.frozen.dropout={str(dropout).lower()}")
    step = step_of(made)
    tokens, frozen = step.batch["anchor"], made.method.encoder("frozen")
    first, second = (frozen.encode(tokens, frozen.embed(tokens)).layers for _ in range(2))
    assert [torch.equal(a, b) for a, b in zip(first.unbind(1), second.unbind(1), strict=True)] == [not dropout] * 3


@pytest.mark.slow
def test_blocks_and_head_are_trained_and_nothing_else(parts):
    made = experiment(parts, "sg_opt_en")
    optimizer = torch.optim.SGD([p for p in made.method.parameters() if p.requires_grad], lr=0.1)
    values = []
    for index in range(2):
        losses = made.method(step_of(made, index))
        made.method.objective(losses).backward()
        values.append(losses["stay_near"].item())
        if index == 0:
            found = {name for name, p in made.method.named_parameters() if p.grad is not None and p.grad.any()}
            optimizer.step()
    assert {name.rpartition("encoder.layer")[0] for name in found} == {"encoders.online.backbone.", ""}
    assert {name for name in found if "encoder.layer" not in name} == {
        f"encoders.online.heads.feed_forward.{layer}.{part}"
        for layer in ("first", "second")
        for part in ("weight", "bias")
    }
    assert values[0] == 0.0
    assert values[1] > 0.0
