import math

import pytest
import torch
from torch import nn

from registry.heads.projection import Projection
from registry.testing.materials import WidthOnly
from tests.registry.heads.literal import linear
from tests.support.errors import refuses


def fitted(given=6, **options):
    head = Projection(**options)
    return head, head.fit(given, WidthOnly(given))


def normalized(values):
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return [(v - mean) / math.sqrt(variance + 1e-12) for v in values]


def literal(network, row):
    """Value by value: each linear layer, then its normalization."""
    for layer in network:
        if isinstance(layer, nn.Linear):
            row = normalized(linear(layer, row))
    return row


def test_worked_by_hand():
    head, out = fitted(2, dropout=0.0)
    assert out == 2
    head.load_state_dict(
        {
            "network.0.weight": torch.tensor([[1.0, 0.0], [0.0, 3.0]]),
            "network.0.bias": torch.tensor([0.0, 1.0]),
            "network.1.weight": torch.tensor([2.0, 2.0]),
            "network.1.bias": torch.tensor([0.0, 0.5]),
        }
    )
    # (2, 1) → (2, 4) → mean 3, deviation 1 → (−1, 1) → (−2, 2.5)
    assert head(torch.tensor([[2.0, 1.0]]), ())[0].tolist() == pytest.approx([-2.0, 2.5], abs=1e-4)


def test_a_width_needs_layers():
    with refuses("heads.width_without_layers", "projection", "width = 3", 6):
        fitted(layers=0, width=3)


@pytest.mark.parametrize(("layers", "width"), [(0, 6), (1, None), (2, 3), (3, 9)])
def test_every_depth_and_width_equals_the_literal_form(layers, width):
    torch.manual_seed(1)
    head, out = fitted(layers=layers, width=width)
    head.eval()
    assert out == (width or 6)
    kinds = [type(layer).__name__ for layer in head.network]
    assert kinds == ["Linear", "LayerNorm", "Dropout"] * layers
    assert [layer.in_features for layer in head.network if isinstance(layer, nn.Linear)] == [6] * layers
    pooled = torch.randn(4, 6)
    expected = torch.tensor([literal(head.network, row) for row in pooled.tolist()])
    assert torch.allclose(head(pooled, ()), expected, atol=1e-4)


def test_dropout_in_training_alone():
    head, _ = fitted(64, dropout=0.5)
    pooled = torch.randn(100, 64)
    dropped = (head(pooled, ()) == 0).float().mean().item()
    assert abs(dropped - 0.5) < 0.03
    assert not (head.eval()(pooled, ()) == 0).any()
