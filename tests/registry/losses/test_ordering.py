import math

import pytest
import torch

from registry.losses.ordering import Ordering
from tests.registry.losses.literal import cosine, draw


@pytest.mark.parametrize(("n", "margin", "by"), [(1, 0.0, "angle"), (6, 0.0, "cosine"), (6, 0.4, "angle")])
def test_equals_the_literal_form(n, margin, by):
    anchor, near, far, *_ = draw(n, 0, seed=n)
    total = 0.0
    for a, x, y in zip(anchor.tolist(), near.tolist(), far.tolist(), strict=True):
        gap = cosine(a, y) - cosine(a, x) if by == "cosine" else math.acos(cosine(a, x)) - math.acos(cosine(a, y))
        total += max(0.0, gap + margin) / n
    assert Ordering(margin, by)(anchor, near, far).item() == pytest.approx(total, abs=1e-9)


def test_value_by_hand():
    # The first in order, cosines 1 and 0. The second not: 90° to `near` and 60° to `far`, cosines 0 and 1/2.
    anchor = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    near, far = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.5, math.sqrt(0.75)]])
    assert Ordering()(anchor, near, far).item() == pytest.approx(0.25, abs=1e-6)
    assert Ordering(by="angle")(anchor, near, far).item() == pytest.approx(math.radians(30) / 2, abs=1e-6)
    assert Ordering(0.1)(anchor, near, far).item() == pytest.approx(0.3, abs=1e-6)
