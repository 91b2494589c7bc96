import math

import pytest
import torch

from registry.losses.peer_positives import PeerPositives
from tests.registry.losses.literal import cosine


def draw(n, k, dim=5, seed=0):
    """Return an anchor view and k positive ones, in double precision."""
    g = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(k + 1)]
    return views[0], tuple(views[1:])


def distribution(anchor, positives, others, temperature):
    """Return, row by row, the probabilities of the positives and of the other rows, one exponential at a time."""
    rows = []
    for i, a in enumerate(anchor.tolist()):
        values = [cosine(a, view[i].tolist()) for view in positives]
        values += [cosine(a, others[j].tolist()) for j in range(len(others)) if j != i]
        powers = [math.exp(value / temperature) for value in values]
        rows.append([power / sum(powers) for power in powers])
    return rows


def literal(anchor, positives, temperature, form):
    total, count = 0.0, 0
    for row in distribution(anchor, positives, anchor, temperature):
        for place, p in enumerate(row):
            p = 1 / (1 + math.exp(-p)) if form == "released" else p
            total -= math.log(p) if place < len(positives) else math.log(1 - p)
            count += 1
    return total / count


@pytest.mark.parametrize(("n", "k", "form"), [(1, 2, "bce"), (2, 1, "released"), (5, 3, "bce")])
def test_matches_the_equation(n, k, form):
    anchor, positives = draw(n, k)
    found = PeerPositives(0.3, form)(anchor, positives)
    assert found.item() == pytest.approx(literal(anchor, positives, 0.3, form), abs=1e-9)


def test_value_by_hand():
    # Two orthogonal sentences whose one positive is themselves: e^{1/τ} against 1, τ = 1/ln 3: p = 3/4 and 1/4.
    anchor = torch.eye(2, dtype=torch.float64)
    found = PeerPositives(1 / math.log(3), "bce")(anchor, (anchor,))
    assert found.item() == pytest.approx(-math.log(3 / 4), abs=1e-9)
