import math

import pytest
import torch

from registry.losses.adaptive_layers import AdaptiveLayers
from registry.losses.alignment import Alignment
from registry.losses.info_nce import InfoNCE
from registry.losses.matryoshka import Matryoshka
from tests.registry.losses import literal as slow


def layers(count=3):
    """Return the inputs of `count` lower layers, and of the last one."""
    drawn = [slow.draw(4, 0, seed=seed)[:2] for seed in range(count + 1)]
    *lower, last = [{"anchor": anchor, "positive": positive} for anchor, positive in drawn]
    return lower, last


def divergence(lower, last, temperature):
    rows = [
        row for side in ("anchor", "positive") for row in zip(lower[side].tolist(), last[side].tolist(), strict=True)
    ]
    total = 0.0
    for found, target in rows:
        p, q = ([math.exp(x / temperature) for x in row] for row in (target, found))
        total += sum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))
    return total / len(rows)


def test_value_by_hand():
    # ℓ' is 0.8 at the last layer and 2 at the only lower one. Both softmaxes are uniform for equal entries.
    last = {"anchor": torch.tensor([[3.0, 4.0]]), "positive": torch.tensor([[2.0, 0.0]])}
    lower = {"anchor": torch.tensor([[3.0, 0.0]]), "positive": torch.tensor([[0.0, 2.0]])}
    loss = AdaptiveLayers(Alignment(), last_weight=2.0, lower_weight=3.0, alignment_weight=0.0)
    assert loss(layers=[lower], **last).item() == pytest.approx(2 * 0.8 + 3 * 2, abs=1e-6)
    same = AdaptiveLayers(Alignment(), last_weight=0.0, lower_weight=0.0)(layers=[last], **last)
    assert same.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("weighting", "weights"),
    [("uniform", [1, 1, 1]), ("linear", [1, 1 / 2, 1 / 3]), ("log", [1, 1 / (1 + math.log(2)), 1 / (1 + math.log(3))])],
)
def test_layer_by_layer_with_widths(weighting, weights):
    lower, last = layers()
    inner = Matryoshka(Alignment(), [2, 6])
    expected = 0.5 * inner(**last).item()
    for layer, weight in zip(lower, weights, strict=True):
        expected += 2.0 * weight / 3 * inner(**layer).item() + 0.7 * 0.4 * divergence(layer, last, 0.4)
    loss = AdaptiveLayers(inner, 0.5, 2.0, weighting, 0.7, 0.4)
    assert loss(layers=lower, **last).item() == pytest.approx(expected, abs=1e-9)


def test_the_last_layer_is_the_fixed_target_and_a_reference_stays():
    lower, last = layers(1)
    given = {**last, "negatives": slow.draw(4, 2)[4], "reference": slow.draw(4, 0)[3].requires_grad_()}
    changed = {**lower[0], "negatives": given["negatives"], "reference": -given["reference"]}
    leaves = [last["anchor"].requires_grad_(), lower[0]["anchor"].requires_grad_()]
    loss = AdaptiveLayers(InfoNCE(false_negative=0.2), last_weight=0.0, alignment_weight=0.5)
    value = loss(layers=[changed], **given)
    plain = InfoNCE(false_negative=0.2)(**{**changed, "reference": given["reference"]})
    assert value.item() == pytest.approx(plain.item() + 0.5 * 0.3 * divergence(lower[0], last, 0.3), abs=1e-9)
    of_last, of_lower = torch.autograd.grad(value, leaves, allow_unused=True)
    assert of_lower.any()
    assert not of_last.any()
