import math

import pytest
import torch
from scipy.stats import spearmanr

from registry import ENCODERS
from tests.registry.encoders.vectors import Given, encoding
from tests.registry.losses.literal import cosine


def fitted(base, texts, share, **values):
    encoder = ENCODERS["rank_mixture"].build({"fit_on": "target", "share": share, **values}, {"online": base})
    encoder.fit(encoding(encoder), texts)
    return encoder


def test_value_by_hand():
    # x = (1, 0) has products 2, 0, −1 with the corpus and the ranks 3, 2, 1; y = (0, 1) has 0, 3, 0 and 1.5, 3, 1.5:
    # ρ = 0, since (1, 0, −1) and (−0.5, 1, −0.5) are at a right angle, and s = 0.
    base = Given(torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]))
    encoder = fitted(base, base.sentences, 0.9)
    x, y, _ = encoding(encoder)(base.sentences)
    assert x.tolist() == pytest.approx([0.9**0.5, 0.0, 0.05**0.5, 0.0, -(0.05**0.5)], abs=1e-6)
    assert y.tolist() == pytest.approx([0.0, 0.9**0.5, *(0.1**0.5 / 1.5**0.5 * r for r in (-0.5, 1, -0.5))], abs=1e-6)


@pytest.mark.parametrize(
    ("share", "similarity"), [(0.0, "inner_product"), (0.9, "inner_product"), (0.5, "cosine"), (1.0, "cosine")]
)
def test_the_cosine_is_the_papers_score(share, similarity):
    base = Given(torch.randn(30, 6, generator=torch.Generator().manual_seed(1)))
    corpus = base.sentences[:20]
    vectors = encoding(fitted(base, corpus, share, similarity=similarity))(base.sentences)
    assert vectors.shape == (30, 6 + 20)
    rows = base.table.tolist()
    lengths = [math.hypot(*row) if similarity == "inner_product" else 1.0 for row in rows]
    orders = [[cosine(row, other) * lengths[place] for place, other in enumerate(rows[:20])] for row in rows]
    for i, j in [(0, 1), (3, 25), (28, 29), (7, 7)]:
        score = share * cosine(rows[i], rows[j]) + (1 - share) * spearmanr(orders[i], orders[j]).statistic
        assert cosine(vectors[i].tolist(), vectors[j].tolist()) == pytest.approx(score, abs=2e-6)
