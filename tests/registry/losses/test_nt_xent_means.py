import math

import pytest
import torch

from registry.losses.nt_xent import NTXent
from registry.losses.nt_xent_means import NTXentMeans
from registry.types import Negatives
from tests.registry.losses import literal as slow
from tests.support.errors import refuses


def views(count, n=3, dim=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(count))


def literal(anchors, positives, tau):
    """The mean over all anchors and all means of −log softmax at the partner, one exponential at a time."""
    share = len(positives) // len(anchors)
    rows, means = [], []
    for k, anchor in enumerate(anchors):
        for i, row in enumerate(anchor.tolist()):
            own = [positives[k * share + m][i].tolist() for m in range(share)]
            rows.append(row)
            means.append([sum(column) / share for column in zip(*own, strict=True)])
    every, total = rows + means, 0.0
    for place, row in enumerate(every):
        partner = (place + len(rows)) % len(every)
        below = sum(math.exp(slow.cosine(row, other) / tau) for j, other in enumerate(every) if j != place)
        total -= math.log(math.exp(slow.cosine(row, every[partner]) / tau) / below)
    return total / len(every)


@pytest.mark.parametrize(("anchors", "share"), [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_equals_the_literal_mean(anchors, share):
    given, near = views(anchors), views(anchors * share, seed=1)
    none = Negatives.none(given[0])
    assert NTXentMeans(0.2, "mean")(given, near, none).item() == pytest.approx(literal(given, near, 0.2), abs=1e-9)


def test_value_by_hand():
    # The mean of (2, 0) and (0, 2) lies at 45° to its anchor; one row alone is certain of its partner, two are not.
    anchors = (torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    near = tuple(torch.tensor([row]) for row in ([2.0, 0.0], [0.0, 2.0], [0.0, 3.0], [0.0, 1.0]))
    half = math.sqrt(0.5)
    # rows a₁ = x, a₂ = y, p₁ = (x + y)/√2, p₂ = y; cosines: a₁p₁ = a₂p₁ = p₁p₂ = √½, a₂p₂ = 1, a₁a₂ = a₁p₂ = 0
    e = math.exp
    shares = [e(half) / (e(half) + 2), e(1) / (e(1) + e(half) + 1), 1 / 3, e(1) / (e(1) + e(half) + 1)]
    expected = -sum(map(math.log, shares)) / 4
    made = NTXentMeans(1.0, "mean")(anchors, near, Negatives.none(anchors[0]))
    assert made.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("reduction", ["sum_of_means", "mean", "sum"])
def test_one_positive_each_is_nt_xent(reduction):
    anchor, positive, _, _, queue = slow.draw(4, 3)
    plain = NTXent(0.3, reduction)(anchor, positive, queue)
    assert NTXentMeans(0.3, reduction)((anchor,), (positive,), queue).item() == plain.item()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_positives_that_cannot_be_shared_are_refused(count):
    with refuses("losses.uneven_views", count, 2):
        NTXentMeans()(views(2), views(count), Negatives.none(views(1)[0]))
