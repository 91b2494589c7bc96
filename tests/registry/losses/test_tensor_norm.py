import math

import pytest
import torch
import torch.nn.functional as F

from registry.losses.tensor_norm import TensorNorm
from tests.registry.losses.literal import draw


def as_the_authors_code(left, right, left_head, right_head):
    """LTN_loss by the steps of model_dual.py:102-118, for rows (2N, D) whose copies are neighbors."""
    total = 0.0
    for i in range(0, len(left), 2):
        cosine = F.cosine_similarity(left[i], right[i + 1], dim=0)
        if cosine < 0.0:
            cosine = torch.tensor(0.0001, dtype=left.dtype)
        long = (
            torch.norm(left_head[i] - right_head[i + 1])
            / (torch.norm(left_head[i]) + torch.norm(right_head[i + 1]))
            / 2.0
        )
        total = total - torch.log(cosine) * long
    return total / (len(left) / 2)


@pytest.mark.parametrize("n", [4, 6])
def test_equals_the_authors_code(n):
    """Of six pairs some have a negative cosine. The other copies of a sentence are in no term."""
    views = draw(n, 0, seed=n)[:4]
    for view in views:
        view.requires_grad_()
    copies = [torch.stack([view, view], dim=1).flatten(0, 1) for view in views]
    expected = as_the_authors_code(*copies)
    value = TensorNorm()(*views)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    for own, theirs in zip(torch.autograd.grad(value, views), torch.autograd.grad(expected, views), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-8, atol=1e-12)


def test_value_by_hand():
    # Cosines 0.8 and −1. Lengths 5 and 1 at distance √20, and 2 and 2 at distance 4.
    h, others = torch.tensor([[4.0, 3.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    p, theirs = torch.tensor([[3.0, 4.0], [2.0, 0.0]]), torch.tensor([[1.0, 0.0], [-2.0, 0.0]])
    first = -math.log(0.8) * math.hypot(2.0, 4.0) / (5 + 1) / 2
    second = -math.log(1e-4) * 4 / (2 + 2) / 2
    assert TensorNorm()(h, others, p, theirs).item() == pytest.approx((first + second) / 2, abs=1e-6)
    assert TensorNorm(floor=1.0)(h, others, p, theirs).item() == pytest.approx(first / 2, abs=1e-6)
