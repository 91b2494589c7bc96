import math

import pytest
import torch

from registry import LOSSES
from registry.losses.focal_info_nce import FocalInfoNCE
from registry.types import Negatives
from tests.registry.losses import literal as slow


def at(cosine):
    """Return a unit vector of the plane whose cosine with (1, 0) is this."""
    return [cosine, math.sqrt(1 - cosine * cosine)]


def focal_terms(positive, negatives, tau=1.0, margin=0.3, **more):
    """Return the loss of one anchor (1, 0), and the leaf cosines it was computed from, in double."""
    leaves = torch.tensor([positive, *negatives], dtype=torch.float64, requires_grad=True)
    rows = torch.stack([leaves, (1 - leaves.square()).sqrt()], dim=1)
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    queue = Negatives(rows[1:], torch.zeros(len(negatives), dtype=torch.float64))
    return FocalInfoNCE(tau, margin, **more)(anchor, rows[:1], queue), leaves


def test_value_by_hand():
    # s⁺ = 1 → 1/τ = 2; the other sentence has s = 0 → 0: log(1 + e⁻²) for both rows.
    anchor = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    value = FocalInfoNCE(temperature=0.5)(anchor, anchor, Negatives.none(anchor))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    # s⁺ = 0.6 → 0.36/0.5 = 0.72; queue: s = 0.8 of weight 1/2 → 0.8·1.1/0.5 = 1.76, s = −0.6 → −0.6·−0.3/0.5 = 0.36.
    anchor, positive = torch.tensor([[1.0, 0.0]]), torch.tensor([at(0.6)])
    queue = Negatives(torch.tensor([at(0.8), at(-0.6)]), torch.tensor([0.5, 1.0]).log())
    value = FocalInfoNCE(temperature=0.5)(anchor, positive, queue)
    below = math.exp(0.72) + 0.5 * math.exp(1.76) + math.exp(0.36)
    assert value.item() == pytest.approx(math.log(below) - 0.72, abs=1e-6)


@pytest.mark.parametrize(
    ("about", "form", "n", "k", "with_hard"),
    [
        ({}, "cross_entropy", 1, 0, False),
        ({"false_negative": 0.2, "weight_on": "logit"}, "bce_softmax", 5, 1, True),
        ({"in_batch": False}, "cross_entropy", 2, 5, True),
    ],
)
def test_matches_the_equation(about, form, n, k, with_hard):
    anchor, positive, hard, reference, queue = slow.draw(n, k, seed=10 * n + k)
    hard = hard if with_hard else None
    tau, m = 0.3, 0.2
    found = FocalInfoNCE(tau, m, hard_weight=0.7, form=form, **about)(anchor, positive, queue, hard, reference)
    rows = slow.cells(
        lambda s: s * s / tau,
        lambda s: s * (s + m) / tau,
        (anchor, positive), queue, hard, reference, hard_weight=0.7, **about,
    )  # fmt: skip
    expected = slow.cross_entropy(rows) if form == "cross_entropy" else slow.binary_cross_entropy(rows, 2 * n + k)
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_authors_arithmetic():
    """Their `sp_logits`: the full cosine matrix, the diagonal squared, s(s + m) elsewhere, all divided by τ."""
    anchor, positive = views = [v.requires_grad_() for v in slow.draw(8, 0, dim=12, seed=3)[:2]]
    scores = torch.nn.CosineSimilarity(dim=-1)(anchor.unsqueeze(1), positive.unsqueeze(0))
    diagonal = torch.eye(8, dtype=torch.float64)
    focal = (scores * diagonal * scores + (scores + 0.3) * (1 - diagonal) * scores) / 0.07
    expected = torch.nn.CrossEntropyLoss()(focal, torch.arange(8))
    found = LOSSES["focal_info_nce"].build({})(anchor, positive, Negatives.none(anchor))
    slow.agree(found, expected, views)


@pytest.mark.parametrize("s", [-0.9, -0.25, 0.4])
def test_gradient_of_a_negative_is_not_what_equation_4_prints(s):
    """∂ℓ/∂s = (2s + m)/τ · p, not (2/τ)(s + m) · p (F8)."""
    tau, m = 0.5, 0.3
    loss, leaves = focal_terms(0.9, [s, 0.2], tau, m)
    (gradient,) = torch.autograd.grad(loss, leaves)
    p = torch.softmax(torch.tensor([0.81, s * (s + m), 0.2 * 0.5], dtype=torch.float64) / tau, dim=0)
    assert gradient[1].item() == pytest.approx((2 * s + m) / tau * p[1].item(), abs=1e-12)
    assert gradient[1].item() != pytest.approx(2 / tau * (s + m) * p[1].item(), abs=1e-4)
    reported_pushes_away = s + m > 0
    if -m < s < -m / 2:
        assert reported_pushes_away
        assert gradient[1].item() < 0  # descent raises s: the negative is drawn nearer
    # Equation 5, of the positive, is right: (2s⁺/τ)(p⁺ − 1).
    assert gradient[0].item() == pytest.approx(2 * 0.9 / tau * (p[0].item() - 1), abs=1e-12)


def test_a_positive_below_zero_moves_to_minus_one_unless_clamped():
    loss, leaves = focal_terms(-0.4, [0.1])
    (gradient,) = torch.autograd.grad(loss, leaves)
    assert gradient[0].item() > 0  # descent lowers s⁺ further
    assert focal_terms(-0.9, [0.1])[0].item() < loss.item()
    clamped, leaves = focal_terms(-0.4, [0.1], clamp=True)
    (gradient,) = torch.autograd.grad(clamped, leaves)
    assert gradient[0].item() == 0.0
    assert clamped.item() == pytest.approx(focal_terms(0.0, [0.1])[0].item())
    assert focal_terms(0.4, [0.1], clamp=True)[0].item() == focal_terms(0.4, [0.1])[0].item()
