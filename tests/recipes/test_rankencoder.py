"""RankEncoder as its recipes put it together: which values, and the losses of a first step."""

from __future__ import annotations

from itertools import islice

import pytest
from scipy.stats import spearmanr

from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.losses.literal import cosine


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rankencoder_en", pytest.param("mini/rankencoder_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_hand(parts, name):
    low, high = 0.0, 0.9999
    made = experiment(parts, name, f"losses.neighbor_ranks.low={low}")
    step = step_of(made)
    losses = made.method(step)
    place = -1 if name.startswith("mini/") else None
    vocabulary = made.method.encoder("base").vocabulary
    texts = [row["text"] for row in islice(catalog.open_text("tatoeba_open", "train"), 30)]

    def finished(tokens):
        cls, means = layers_of(parts, tokens)
        return (cls if place is None else means[:, place]).tolist()

    corpus = finished(vocabulary.pad(vocabulary.ids(texts, 64)))
    orders = [[cosine(e, c) for c in corpus] for e in finished(step.batch["reference"])]
    vectors = step.views["anchor"].sentence  # no dropout: both views are alike
    contrast = info_nce(vectors, vectors, 0.05)
    rows, errors = vectors.tolist(), []
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            r = 1.0 if i == j else spearmanr(orders[i], orders[j]).statistic
            errors += [(cosine(a, b) - r) ** 2] if low <= r <= high else []
    assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
    assert 0 < len(errors) < 16
    assert losses["neighbor_ranks"].item() == pytest.approx(sum(errors) / len(errors), abs=1e-6)
