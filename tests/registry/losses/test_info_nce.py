import math

import pytest
import torch

from registry import LOSSES
from registry.losses.info_nce import InfoNCE
from registry.types import Negatives


def literal(anchor, positive, negatives, tau, hard=None, hard_weight=0.0):
    """Equation 6, one exponential at a time."""

    def s(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    a, p, q = anchor.tolist(), positive.tolist(), negatives.vectors.tolist()
    weights = negatives.log_weights.tolist()
    total = 0.0
    for i, h in enumerate(a):
        below = sum(math.exp(s(h, other) / tau) for other in p)
        if hard is not None:
            for j, other in enumerate(hard.tolist()):
                below += math.exp(s(h, other) / tau + (hard_weight if i == j else 0.0))
        below += sum(math.exp(w) * math.exp(s(h, other) / tau) for w, other in zip(weights, q, strict=True))
        total -= math.log(math.exp(s(h, p[i]) / tau) / below)
    return total / len(a)


def draw(n, dim, k, seed=0):
    g = torch.Generator().manual_seed(seed)
    make = lambda rows: torch.randn(rows, dim, generator=g, dtype=torch.float64)  # noqa: E731
    weights = torch.rand(k, generator=g, dtype=torch.float64).log()
    return make(n), make(n), make(n), Negatives(make(k), weights)


def test_value_by_hand():
    # Cosines: rows (1, 0), (0, 1); temperature 0.5 → logits 2 and 0 → each row log(1 + e^-2).
    anchor = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    positive = torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    value = InfoNCE(temperature=0.5)(anchor, positive, Negatives.none(anchor))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)


def test_value_by_hand_with_queue():
    # One row: positive cosine 1, queue cosines 1 (weight 1/2) and 0 (weight 1): e² / (e² + e²/2 + 1).
    anchor = torch.tensor([[5.0, 0.0]])
    queue = Negatives(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1.0]).log())
    value = InfoNCE(temperature=0.5)(anchor, anchor, queue)
    assert value.item() == pytest.approx(math.log(1.5 + math.exp(-2)), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_matches_the_equation(n, k, tau):
    anchor, positive, hard, negatives = draw(n, 6, k, seed=n + k)
    loss = InfoNCE(temperature=tau, hard_weight=0.7)
    assert loss(anchor, positive, negatives).item() == pytest.approx(literal(anchor, positive, negatives, tau))
    with_hard = loss(anchor, positive, negatives, hard).item()
    assert with_hard == pytest.approx(literal(anchor, positive, negatives, tau, hard, 0.7))


@pytest.mark.parametrize("k", [0, 3])
def test_gradient_is_exact(k):
    anchor, positive, hard, negatives = draw(4, 5, k)
    inputs = [t.requires_grad_() for t in (anchor, positive, hard)]
    loss = InfoNCE(temperature=0.2, hard_weight=-0.5)
    assert torch.autograd.gradcheck(lambda a, p, h: loss(a, p, negatives, h), inputs)


def test_sum_is_n_times_mean():
    anchor, positive, _, negatives = draw(6, 5, 3)
    mean, total = (InfoNCE(reduction=r)(anchor, positive, negatives).item() for r in ("mean", "sum"))
    assert total == pytest.approx(6 * mean)


def test_switched_off_entries_do_not_exist():
    anchor, positive, _, negatives = draw(4, 5, 3)
    anchor.requires_grad_()
    off = Negatives(negatives.vectors, torch.full((3,), -torch.inf, dtype=torch.float64))
    loss = InfoNCE()
    value = loss(anchor, positive, off)
    value.backward()
    assert value.item() == loss(anchor, positive, Negatives.none(anchor)).item()
    assert anchor.grad is not None
    assert torch.isfinite(anchor.grad).all()


def test_single_row_without_queue_is_certain():
    anchor = torch.randn(1, 4, generator=torch.Generator().manual_seed(0))
    assert InfoNCE()(anchor, -anchor, Negatives.none(anchor)).item() == 0.0


def test_extreme_temperature_stays_finite():
    anchor = torch.eye(3)
    value = InfoNCE(temperature=1e-4)(anchor, -anchor, Negatives.none(anchor))
    assert value.item() == pytest.approx(1e4 + math.log(2), rel=1e-6)  # the two others are at 0


def test_zero_vector_has_cosine_zero():
    anchor = torch.zeros(2, 3)
    positive = torch.eye(3)[:2]
    assert InfoNCE()(anchor, positive, Negatives.none(anchor)).item() == pytest.approx(math.log(2))


def test_mixed_precision_computes_in_single():
    anchor, positive, _, negatives = (t.float() if isinstance(t, torch.Tensor) else t for t in draw(8, 16, 4))
    single = Negatives(negatives.vectors.float(), negatives.log_weights.float())
    expected = InfoNCE()(anchor.bfloat16().float(), positive.bfloat16().float(), single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = InfoNCE()(anchor.bfloat16(), positive.bfloat16(), single)
    assert found.dtype == torch.float32
    assert found.item() == expected.item()


def test_simcse_default():
    """SimCSE's own lines: CosineSimilarity / 0.05, cross-entropy with labels arange."""
    g = torch.Generator().manual_seed(3)
    first, second = torch.randn(8, 12, generator=g), torch.randn(8, 12, generator=g)
    scores = torch.nn.CosineSimilarity(dim=-1)(first.unsqueeze(1), second.unsqueeze(0)) / 0.05
    expected = torch.nn.CrossEntropyLoss()(scores, torch.arange(8))
    found = LOSSES["info_nce"].build({})(first, second, Negatives.none(first))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
