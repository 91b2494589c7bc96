import math

import pytest
import torch
from torch import nn

from registry.losses.dimension_contrast import DimensionContrast
from tests.registry.losses import literal as slow
from tests.registry.losses.test_decorrelation import correlation


def test_value_by_hand():
    # Standardized, the two dimensions are (1, −1) and (−1, 1): C is ±v/(v + 10⁻⁵), v the variances 1 and 4.
    view = torch.tensor([[1.0, 0.0], [-1.0, 4.0]], dtype=torch.float64)
    first, second = 1 / (1 + 1e-5), 4 / (4 + 1e-5)
    beside = -math.sqrt(first * second)
    expected = sum(math.log(1 + math.exp((beside - same) / 0.5)) for same in (first, second)) / 2
    assert DimensionContrast(temperature=0.5)(view, view).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rows", "width"), [(2, 3), (5, 1), (7, 6)])
def test_row_by_row(rows, width):
    a, b, *_ = slow.draw(rows, 0, dim=width, seed=rows)
    c = correlation(a.tolist(), b.tolist())
    expected = -sum(math.log(math.exp(row[k] / 5) / sum(math.exp(x / 5) for x in row)) for k, row in enumerate(c))
    assert DimensionContrast()(a, b).item() == pytest.approx(expected / width, abs=1e-9)


def test_the_authors_arithmetic():
    """Their own lines: torch's batch normalization, and the cross-entropy written out."""
    a, b, *_ = slow.draw(9, 0, dim=5, seed=1)
    norm = nn.BatchNorm1d(5, affine=False).double()
    c = norm(a).T @ norm(b) / 9 / 10.0
    expected = (-torch.diag(c) + torch.logsumexp(c, dim=-1)).mean()
    assert DimensionContrast(10.0)(a, b).item() == pytest.approx(expected.item(), abs=1e-9)
