import math

import pytest
import torch
from torch import nn

from registry.losses.decorrelation import Decorrelation
from tests.registry.losses import literal as slow


def correlation(left, right):
    """C cell by cell, of lists of rows; batch normalization's 10⁻⁵ in the variances."""
    rows, width = len(left), len(left[0])

    def standard(view, k):
        column = [row[k] for row in view]
        mean = sum(column) / rows
        deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / rows + 1e-5)
        return [(x - mean) / deviation for x in column]

    return [
        [sum(x * y for x, y in zip(standard(left, k), standard(right, m), strict=True)) / rows for m in range(width)]
        for k in range(width)
    ]


def test_value_by_hand():
    # Standardized, both views' dimensions are (1, −1) and (−1, 1): C is 1 on the diagonal and −1 beside it.
    view = torch.tensor([[1.0, 0.0], [-1.0, 4.0]], dtype=torch.float64)
    first, second = 1 / (1 + 1e-5), 4 / (4 + 1e-5)  # each divided by its variance and 10⁻⁵
    expected = (first - 1) ** 2 + (second - 1) ** 2 + 0.5 * 2 * first * second
    assert Decorrelation(off_diagonal=0.5)(view, 3 * view + 1).item() == pytest.approx(expected, abs=1e-4)
    assert Decorrelation(off_diagonal=0.5)(view, view).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rows", "width"), [(2, 3), (5, 1), (7, 6)])
def test_cell_by_cell(rows, width):
    a, b, *_ = slow.draw(rows, 0, dim=width, seed=rows)
    c = correlation(a.tolist(), b.tolist())
    same = sum((c[k][k] - 1) ** 2 for k in range(width))
    different = sum(c[k][m] ** 2 for k in range(width) for m in range(width) if k != m)
    assert Decorrelation()(a, b).item() == pytest.approx(same + 0.012 * different, abs=1e-9)


def test_the_authors_arithmetic():
    """SCD's own lines: torch's batch normalization of each view, and the matrix without its diagonal by a view."""
    a, b, *_ = slow.draw(9, 0, dim=5, seed=1)
    norm = nn.BatchNorm1d(5, affine=False).double()
    c = norm(a).T @ norm(b) / len(a)
    off = c.flatten()[:-1].view(4, 6)[:, 1:].flatten()
    expected = (torch.diagonal(c) - 1).pow(2).sum() + 0.012 * off.pow(2).sum()
    assert Decorrelation()(a, b).item() == pytest.approx(expected.item(), abs=1e-9)


def test_one_row_or_a_constant_dimension_teaches_nothing():
    one = torch.ones(1, 3, requires_grad=True)
    value = Decorrelation()(one, one)
    value.backward()
    assert value.item() == 3.0
    assert one.grad.tolist() == [[0.0, 0.0, 0.0]]
