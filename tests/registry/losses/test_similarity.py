import pytest
import torch

from registry.losses.similarity import Similarity
from tests.registry.losses import literal as slow


def test_value_by_hand():
    # Cosines 0.6 and −1.
    a, b = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, -5.0]])
    assert Similarity(temperature=0.5)(a, b).item() == pytest.approx((0.6 - 1) / 2 / 0.5, abs=1e-6)


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_row_by_row(rows):
    a, b, *_ = slow.draw(rows, 0, seed=rows)
    expected = sum(slow.cosine(a[i].tolist(), b[i].tolist()) for i in range(rows)) / rows / 0.05
    assert Similarity()(a, b).item() == pytest.approx(expected, abs=1e-9)
