import math

import pytest
import torch
from torch import nn

from registry.heads.predictor import Predictor
from registry.testing.materials import WidthOnly
from tests.registry.heads.literal import linear
from tests.registry.heads.test_projection import literal
from tests.support.errors import refuses


def fitted(given=6, **options):
    head = Predictor(**options)
    return head, head.fit(given, WidthOnly(given))


def test_worked_by_hand_and_without_layers():
    head, out = fitted(2, layers=1)
    assert out == 2
    head.load_state_dict(
        {"network.0.weight": torch.tensor([[1.0, 2.0], [0.0, -1.0]]), "network.0.bias": torch.tensor([0.5, 0.0])}
    )
    assert head(torch.tensor([[0.1, 0.2]]), ())[0].tolist() == pytest.approx([math.tanh(1.0), math.tanh(-0.2)])
    head, out = fitted(layers=0)
    pooled = torch.randn(3, 6)
    assert out == 6
    assert torch.equal(head(pooled, ()), pooled)
    with refuses("heads.width_without_layers", "predictor", "width = 7", 6):
        fitted(layers=0, width=7)
    head, _ = fitted(layers=1)
    weight, bias, activation = head.dense()
    assert activation == "Tanh"
    assert torch.equal((pooled @ weight.T + bias).tanh(), head(pooled, ()))
    assert fitted(layers=2)[0].dense() is None


@pytest.mark.parametrize(("layers", "width"), [(1, None), (2, 3), (3, 9)])
def test_every_depth_and_width_equals_the_literal_form(layers, width):
    torch.manual_seed(1)
    head, out = fitted(layers=layers, width=width)
    head.eval()
    assert out == (width or 6)
    *first, last, tanh = head.network
    assert [type(layer).__name__ for layer in first] == ["Linear", "LayerNorm", "Dropout"] * (layers - 1)
    assert isinstance(tanh, nn.Tanh)
    pooled = torch.randn(4, 6)
    for row, vector in zip(pooled.tolist(), head(pooled, ()).tolist(), strict=True):
        assert vector == pytest.approx(list(map(math.tanh, linear(last, literal(first, row)))), abs=1e-4)
