import math

import pytest
import torch

from registry.losses.alignment import Alignment
from tests.registry.losses.literal import cosine, draw


def literal(anchor, positive, power):
    total = 0.0
    for a, b in zip(anchor.tolist(), positive.tolist(), strict=True):
        gaps = [x / math.hypot(*a) - y / math.hypot(*b) for x, y in zip(a, b, strict=True)]
        total += math.hypot(*gaps) ** power / len(anchor)
    return total


@pytest.mark.parametrize(("n", "power"), [(1, 1.0), (5, 2.0), (5, 3.5)])
def test_equals_the_literal_form(n, power):
    anchor, positive, *_ = draw(n, 0, seed=n)
    expected = literal(anchor, positive, power)
    assert Alignment(power)(anchor, positive).item() == pytest.approx(expected, abs=1e-9)
    assert Alignment(power, "dimensions")(anchor, positive).item() == pytest.approx(expected / 6, abs=1e-9)


def test_value_by_hand():
    # At 90° and at 60°: squared distances 2 and 1 whatever the lengths.
    anchor = torch.tensor([[3.0, 0.0], [2.0, 0.0]])
    positive = torch.tensor([[0.0, 5.0], [1.0, math.sqrt(3.0)]])
    assert Alignment()(anchor, positive).item() == pytest.approx(1.5, abs=1e-6)
    assert Alignment(1.0)(anchor, positive).item() == pytest.approx((math.sqrt(2) + 1) / 2, abs=1e-6)


def test_over_dimensions_it_is_the_mean_squared_error():
    anchor, positive, *_ = draw(4, 0)
    error = sum(2 - 2 * cosine(a, b) for a, b in zip(anchor.tolist(), positive.tolist(), strict=True)) / 24
    assert Alignment(over="dimensions")(anchor, positive).item() == pytest.approx(error, abs=1e-9)
