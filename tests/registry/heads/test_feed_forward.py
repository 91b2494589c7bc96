import math

import pytest
import torch

from registry.heads.feed_forward import FeedForward
from registry.testing.materials import WidthOnly
from tests.registry.heads.literal import linear

GIVEN = [
    {"hidden": 7, "width": 3, "activation": "gelu", "last_activation": True},  # SG-OPT's form
    {"width": 3, "bias": False},  # VaSCL's
    {},
]


def fitted(given=5, **options):
    torch.manual_seed(1)
    head = FeedForward(**options)
    return head.double(), head.fit(given, WidthOnly(given))


def bent(activation, values):
    if activation == "relu":
        return [max(0.0, v) for v in values]
    return [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in values]


@pytest.mark.parametrize("options", GIVEN)
def test_equals_the_literal_form(options):
    head, out = fitted(**options)
    head.double()
    pooled = torch.randn(4, 5, dtype=torch.float64)
    made = head(pooled, ())
    assert made.shape == (4, out) == (4, options.get("width", 5))
    assert head.first.out_features == options.get("hidden", 5)
    assert (head.first.bias is None, head.second.bias is None) == ((not options.get("bias", True),) * 2)
    sigma = options.get("activation", "relu")
    for row, found in zip(pooled.tolist(), made.tolist(), strict=True):
        for part, bends in ((head.first, True), (head.second, options.get("last_activation", False))):
            row = linear(part, row)
            row = bent(sigma, row) if bends else row
        assert found == pytest.approx(row, abs=1e-12)


@pytest.mark.slow
def test_normal_start_is_that_of_the_authors_of_sg_opt():
    """SG10, `loss.py:249-258`: both layers from N(0, 0.02²), whatever their width, and biases 0."""
    head, _ = fitted(256, hidden=1024, width=1024, activation="gelu", last_activation=True, initial="normal")
    for part in (head.first, head.second):
        deviation = math.sqrt(sum(w * w for row in part.weight.tolist() for w in row) / part.weight.numel())
        assert deviation == pytest.approx(0.02, rel=0.01)
        assert not part.bias.any()
    assert fitted(initial="normal", bias=False)[0].first.bias is None
