import pytest
import torch
from scipy.stats import spearmanr

from registry import LOSSES
from registry.errors import CseError
from registry.ranks import unit_ranks
from tests.registry.encoders.vectors import Given
from tests.registry.losses.literal import cosine, draw

CORPUS = 25


@pytest.fixture
def base(monkeypatch):
    """An encoder whose vectors are given, of a corpus that has just its sentences."""
    encoder = Given(torch.randn(CORPUS, 6, generator=torch.Generator().manual_seed(3)).double())
    rows = [{"text": sentence} for sentence in encoder.sentences]
    monkeypatch.setattr("registry.losses.neighbor_ranks.catalog.open_text", lambda *_: iter(rows))
    return encoder


def built(base, **values):
    return LOSSES["neighbor_ranks"].build({"base": "b", "dataset": "tatoeba_open", **values}, {"b": base})


def literal(base, anchor, positive, reference, low, high, limit=CORPUS):
    """Return the loss pair by pair, by scipy's Spearman, and how many pairs are fitted."""
    corpus = base.table.tolist()[:limit]
    orders = [[cosine(e, c) for c in corpus] for e in reference.tolist()]
    errors = []
    for i, a in enumerate(anchor.tolist()):
        for j, b in enumerate(positive.tolist()):
            r = 1.0 if i == j else spearmanr(orders[i], orders[j]).statistic
            if low <= r <= high:
                errors.append((cosine(a, b) - r) ** 2)
    return sum(errors) / max(1, len(errors)), len(errors)


@pytest.mark.parametrize(("low", "high", "limit"), [(-1.0, 1.0, CORPUS), (0.0, 0.9999, CORPUS), (-0.3, 0.6, 7)])
def test_equals_scipys_correlation_pair_by_pair(base, low, high, limit):
    anchor, positive, _, reference, _ = draw(6, 0, seed=1)
    expected, fitted = literal(base, anchor, positive, reference, low, high, limit)
    assert 0 < fitted <= 36
    found = built(base, low=low, high=high, limit=limit)(anchor, positive, reference)
    assert found.item() == pytest.approx(expected, abs=1e-9)


def test_ranks_by_hand_and_limits_without_a_pair(base):
    anchor, positive, _, reference, _ = draw(4, 0)
    assert literal(base, anchor, positive, reference, 0.99, 0.9999)[1] == 0
    assert built(base, low=0.99)(anchor, positive, reference).item() == 0.0
    with pytest.raises(CseError, match="sentence"):
        built(base, column="sentence")
    # 3, 1, 3, 2 have the mean ranks 3.5, 1, 3.5, 2; less 2.5: 1, −1.5, 1, −0.5, of length √4.5.
    ranks = unit_ranks(torch.tensor([[3.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]]))
    expected = [value / 4.5**0.5 for value in (1.0, -1.5, 1.0, -0.5)]
    assert ranks[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert ranks[1].tolist() == [0.0] * 4
