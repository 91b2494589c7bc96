import math
from functools import partial

import pytest
import torch
from torch import nn

from registry.heads.batch_norm_relu import BatchNormRelu
from registry.testing.materials import draw
from tests.registry.heads.literal import fit_head

GROUPS = (("anchor", 5), ("positive", 5))

fitted = partial(fit_head, BatchNormRelu)


def projector(head, width):
    """Return DiffCSE's `ProjectionMLP`, layer by layer as in its code, with this head's weights."""
    layers = nn.Sequential(
        nn.Linear(width, 2 * width, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width, bias=False),
        nn.BatchNorm1d(width, affine=False),
    )
    layers[0].weight, layers[3].weight = (layer.weight for layer in head.layers)
    layers[1].weight, layers[1].bias = head.norms[0].weight, head.norms[0].bias
    return layers.to(head.layers[0].weight.dtype)


def with_large_weights(head):
    for layer in head.layers:
        nn.init.normal_(layer.weight)


def test_worked_by_hand():
    # Ux is (±1, ∓1) twice over, BN₁ leaves ±a, a = 1/√(1 + 10⁻⁵); ReLU keeps (a, 0) and (0, a); V = (1, −1) gives ±a.
    head = fitted(1)
    head.load_state_dict(
        {"layers.0.weight": torch.tensor([[1.0], [-1.0]]), "layers.1.weight": torch.tensor([[1.0, -1.0]])}, strict=False
    )
    out = head(torch.tensor([[1.0], [-1.0]]), ())
    a = 1 / math.sqrt(1 + 1e-5)
    assert out.flatten().tolist() == pytest.approx([a / math.sqrt(a * a + 1e-5), -a / math.sqrt(a * a + 1e-5)])


@pytest.mark.parametrize("width", [1, 4, 7])
def test_equals_the_authors_layers_over_both_views_together(width):
    head, pooled = fitted(width).double(), draw(1, 10, width).double()
    with_large_weights(head)
    layers = projector(head, width)
    torch.testing.assert_close(head(pooled, GROUPS), layers(pooled))
    head.eval()
    layers.eval()
    torch.testing.assert_close(head(pooled, ()), layers(pooled))


def test_views_by_themselves():
    head, pooled = fitted(4, together=[]).double(), draw(2, 10, 4).double()
    layers = projector(head, 4)
    expected = torch.cat([layers(pooled[:5]), layers(pooled[5:])])
    torch.testing.assert_close(head(pooled, GROUPS), expected)
