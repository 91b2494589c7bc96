import math

import pytest
import torch

from registry.losses.ranking_consistency import RankingConsistency
from tests.registry.losses.literal import draw, softmax_of_cosines


@pytest.mark.parametrize(("n", "tau"), [(1, 0.7), (2, 0.7), (5, 0.05)])
def test_equals_the_literal_form(n, tau):
    anchor, positive, *_ = draw(n, 0, seed=n)
    p, q = softmax_of_cosines(anchor, positive, tau), softmax_of_cosines(positive, anchor, tau)
    js = negative_entropy = 0.0
    for pi, qi in zip(p, q, strict=True):
        for a, b in zip(pi, qi, strict=True):
            middle = (a + b) / 2
            js += (a * math.log(a / middle) + b * math.log(b / middle)) / 2 / n
            negative_entropy += (a * math.log(a) + b * math.log(b)) / 2 / n
    assert RankingConsistency(tau)(anchor, positive).item() == pytest.approx(js, abs=1e-9)
    released = RankingConsistency(tau, "released")(anchor, positive).item()
    assert released == pytest.approx(negative_entropy - 1e-7, abs=1e-9)


def test_value_by_hand_and_of_equal_views():
    # Both anchors have cosines 1 and 0 with the positives: p is (a, 1 − a) twice, with a = e/(e + 1) at τ = 1, and each
    # positive has equal cosines with both anchors: q is (1/2, 1/2) twice.
    anchor, positive = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    a = math.e / (math.e + 1)
    m = [(a + 0.5) / 2, (1.5 - a) / 2]
    left = a * math.log(a / m[0]) + (1 - a) * math.log((1 - a) / m[1])
    right = 0.5 * math.log(0.5 / m[0]) + 0.5 * math.log(0.5 / m[1])
    assert RankingConsistency(1.0)(anchor, positive).item() == pytest.approx((left + right) / 2, abs=1e-6)
    anchor = draw(6, 0)[0].requires_grad_()
    assert RankingConsistency()(anchor, anchor).item() == pytest.approx(0.0, abs=1e-12)
    (gradient,) = torch.autograd.grad(RankingConsistency(0.5, "released")(anchor, anchor), anchor)
    assert gradient.norm() > 1e-3
