import pytest
import torch

from registry.losses.bootstrap import Bootstrap
from tests.registry.losses import literal as slow


def test_value_by_hand():
    # One sentence: cos(q(a), g(b)) = 0.6, cos(q(b), g(a)) = −1.
    a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])
    value = Bootstrap()(a, b, anchor_target=torch.tensor([[0.0, -5.0]]), positive_target=torch.tensor([[1.0, 0.0]]))
    assert value.item() == pytest.approx((2 - 2 * 0.6) + (2 + 2), abs=1e-6)


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_row_by_row(rows):
    a, b, a_target, b_target, _ = slow.draw(rows, 0, seed=rows)
    expected = 0.0
    for i in range(rows):
        expected += 2 - 2 * slow.cosine(a[i].tolist(), b_target[i].tolist())
        expected += 2 - 2 * slow.cosine(b[i].tolist(), a_target[i].tolist())
    assert Bootstrap()(a, b, a_target, b_target).item() == pytest.approx(expected / rows, abs=1e-9)
