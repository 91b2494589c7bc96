import pytest
import torch

from registry.losses.bidirectional_margin import BidirectionalMargin
from tests.registry.losses.literal import cosine, draw
from tests.support.errors import refuses


def test_worked_by_hand_and_without_room():
    """s(z, z⁺) = 1; D = 0 − 1, 0.6 − 1 and 0.8 − 1: below, below and within [−0.3, −0.1]; the last one above it."""
    anchor = torch.tensor([[1.0, 0.0]] * 4, dtype=torch.float64)
    soft = torch.tensor([[0.0, 2.0], [3.0, 4.0], [4.0, 3.0], [5.0, 0.0]], dtype=torch.float64)
    found = BidirectionalMargin()(anchor, 2 * anchor, soft).item()
    assert found == pytest.approx((0.7 + 0.1 + 0.0 + 0.1) / 4, abs=1e-12)
    with refuses("losses.alpha_exceeds_beta", "alpha = 0.3", "beta = 0.1"):
        BidirectionalMargin(0.3, 0.1)


@pytest.mark.parametrize("band", [(0.1, 0.3), (0.0, 1.0), (0.2, 0.2)])
def test_matches_the_equation(band):
    alpha, beta = band
    views = draw(9, 0)[:3]
    total = 0.0
    for h, plus, minus in zip(*(view.tolist() for view in views), strict=True):
        difference = cosine(h, minus) - cosine(h, plus)
        total += max(0.0, difference + alpha) + max(0.0, -difference - beta)
    assert BidirectionalMargin(alpha, beta)(*views).item() == pytest.approx(total / 9, abs=1e-12)
