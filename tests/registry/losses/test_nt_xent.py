import math

import pytest
import torch

from registry.losses.nt_xent import NTXent
from registry.types import Negatives
from tests.registry.losses import literal as slow


def literal(anchor, positive, queue, tau):
    """Both directions of lists of rows, one exponential at a time; `queue` is (entry, weight)."""
    views, means = (anchor, positive), []
    for own, other in (views, views[::-1]):
        total = 0.0
        for i, h in enumerate(own):
            below = sum(math.exp(slow.cosine(h, z) / tau) for z in other)
            below += sum(math.exp(slow.cosine(h, z) / tau) for j, z in enumerate(own) if j != i)
            below += sum(weight * math.exp(slow.cosine(h, z) / tau) for z, weight in queue)
            total -= math.log(math.exp(slow.cosine(h, other[i]) / tau) / below)
        means.append(total / len(own))
    return means


def test_value_by_hand():
    # Two sentences on two axes, τ = 0.5: each of four rows has its positive at e² and two others at e⁰.
    anchor = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    row = math.log(math.exp(2) + 2) - 2
    value = NTXent(temperature=0.5)(anchor, anchor, Negatives.none(anchor))
    assert value.item() == pytest.approx(2 * row, abs=1e-6)
    assert NTXent(0.5, "mean")(anchor, anchor, Negatives.none(anchor)).item() == pytest.approx(row, abs=1e-6)
    assert NTXent(0.5, "sum")(anchor, anchor, Negatives.none(anchor)).item() == pytest.approx(4 * row, abs=1e-5)


@pytest.mark.parametrize(("n", "k", "tau"), [(1, 0, 0.1), (2, 5, 1.0), (7, 1, 0.1)])
def test_matches_both_directions(n, k, tau):
    anchor, positive, _, _, queue = slow.draw(n, k, seed=n + k)
    entries = list(zip(queue.vectors.tolist(), queue.log_weights.exp().tolist(), strict=True))
    there, back = literal(anchor.tolist(), positive.tolist(), entries, tau)
    assert NTXent(tau)(anchor, positive, queue).item() == pytest.approx(there + back, abs=1e-9)
    assert NTXent(tau, "mean")(anchor, positive, queue).item() == pytest.approx((there + back) / 2, abs=1e-9)
    assert NTXent(tau, "sum")(anchor, positive, queue).item() == pytest.approx((there + back) * n, abs=1e-9)


def test_the_authors_arithmetic():
    """ConSERT's own lines: logits_ab, logits_aa with −1e9 on its diagonal, and the sum of both directions."""
    anchor, positive, *_ = slow.draw(6, 0, dim=10, seed=2)
    a, b = (torch.nn.functional.normalize(v, dim=-1) for v in (anchor, positive))
    hide = torch.eye(6, dtype=torch.float64) * 1e9
    aa, bb, ab, ba = a @ a.T / 0.1 - hide, b @ b.T / 0.1 - hide, a @ b.T / 0.1, b @ a.T / 0.1
    score = torch.nn.CrossEntropyLoss()
    labels = torch.arange(6)
    expected = score(torch.cat([ab, aa], dim=1), labels) + score(torch.cat([ba, bb], dim=1), labels)
    assert NTXent()(anchor, positive, Negatives.none(anchor)).item() == pytest.approx(expected.item())
