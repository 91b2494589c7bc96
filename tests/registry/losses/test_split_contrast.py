import math

import pytest
import torch

from registry.losses.split_contrast import SplitContrast
from tests.registry.losses import literal as slow


def literal(anchor, positive, undropped, tau, share):
    """Row by row, one exponential at a time."""
    rows, total = len(anchor), 0.0
    for i in range(rows):
        above = math.exp(share * slow.cosine(anchor[i].tolist(), positive[i].tolist()) / tau)
        pairs = (slow.cosine(undropped[i].tolist(), undropped[j].tolist()) for j in range(rows) if j != i)
        total -= math.log(above / (above + sum(math.exp(each / tau) for each in pairs)))
    return total / rows


def test_value_by_hand():
    # τ = 0.5: both positives are at e², the one negative pair, at a right angle, at e⁰; with p = 0.5 they are at e¹.
    views = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert SplitContrast(0.5)(views, views, views).item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    assert SplitContrast(0.5, 0.5)(views, views, views).item() == pytest.approx(math.log(1 + math.exp(-1)), abs=1e-6)


@pytest.mark.parametrize(("rows", "tau", "share"), [(1, 0.05, 1.0), (7, 0.05, 0.9), (7, 1.0, 0.5)])
def test_row_by_row(rows, tau, share):
    anchor, positive, undropped, *_ = slow.draw(rows, 0, seed=rows)
    expected = literal(anchor, positive, undropped, tau, share)
    assert SplitContrast(tau, share)(anchor, positive, undropped).item() == pytest.approx(expected, abs=1e-9)


def test_the_authors_arithmetic():
    """Their own lines: −103.3 added to the diagonal, and the positive as one more column."""
    anchor, positive, undropped, *_ = slow.draw(6, 0, dim=10, seed=2)
    cosine = torch.nn.CosineSimilarity(dim=-1)
    own = 0.9 * cosine(anchor, positive) / 0.05
    among = cosine(undropped.unsqueeze(0), undropped.unsqueeze(1)) / 0.05 - 103.279 * torch.eye(6)
    expected = (torch.logsumexp(torch.cat([among, own.unsqueeze(-1)], dim=-1), dim=-1) - own).mean()
    assert SplitContrast(0.05, 0.9)(anchor, positive, undropped).item() == pytest.approx(expected.item(), abs=1e-9)
