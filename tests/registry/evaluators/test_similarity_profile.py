import math
import random

import pytest

from registry.evaluators.similarity_profile import SimilarityProfile, bands
from registry.resources.catalog import Pair
from tests.registry.evaluators.points import Points, on_circle, scattered
from tests.registry.losses import literal

CIRCLE = on_circle(a=0, b=60, c=90, d=180)
"""Cosines: a with a 1, with b 0.5, with c 0, with d −1."""
PAIRS = [Pair("", 5.0, "a", "a"), Pair("", 4.0, "a", "b"), Pair("", 2.4, "a", "c"), Pair("", 0.0, "a", "d")]


def test_value_by_hand(pairs):
    pairs(PAIRS)
    evaluator = SimilarityProfile(tail=0.25, bins=5)
    assert evaluator.series() == {}
    found = evaluator(CIRCLE)
    # In order −1, 0, 0.5, 1: the first quartile lies at place 0.75, the third at 2.25.
    assert found == pytest.approx(
        {"low": -0.25, "high": 0.625, "spread": 0.875, "min": -1.0, "max": 1.0, "mean": 0.125}, abs=1e-7
    )
    assert set(found) == set(SimilarityProfile.metrics)
    series = evaluator.series()
    assert series["gold"] == [5.0, 4.0, 2.4, 0.0]
    assert series["cosine"] == pytest.approx([1.0, 0.5, 0.0, -1.0], abs=1e-7)
    # Bands 1 wide: 0.0; 2.4; 4.0 and 5.0, the highest score of all.
    assert series["bin_gold"] == pytest.approx([0.5, 2.5, 4.5])
    assert series["bin_cosine"] == pytest.approx([-1.0, 0.0, 0.75], abs=1e-7)
    assert series["bin_pairs"] == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(("count", "tail"), [(2, 0.0), (10, 0.3), (61, 0.05)])
def test_equals_the_definition_written_out(pairs, count, tail):
    rng = random.Random(count)
    names = [str(place) for place in range(count)]
    rows = [Pair("", rng.uniform(0, 5), *rng.choices(names, k=2)) for _ in range(3 * count)]
    pairs(rows)
    evaluator, encode = SimilarityProfile(tail=tail, bins=4), scattered(count, 3)
    found = evaluator(encode)

    def cosine(row):
        return literal.cosine(*(encode([text])[0].tolist() for text in (row.first, row.second)))

    def quantile(share):
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    ordered = sorted(map(cosine, rows))
    assert found["low"] == pytest.approx(quantile(tail), abs=1e-9)
    assert found["high"] == pytest.approx(quantile(1 - tail), abs=1e-9)
    assert found["spread"] == pytest.approx(quantile(1 - tail) - quantile(tail), abs=1e-9)
    assert (found["min"], found["max"]) == pytest.approx((ordered[0], ordered[-1]), abs=1e-9)
    assert found["mean"] == pytest.approx(sum(ordered) / len(ordered), abs=1e-9)
    lowest = min(row.score for row in rows)
    width = (max(row.score for row in rows) - lowest) / 4
    for middle, mean, size in zip(
        *(evaluator.series()[f"bin_{name}"] for name in ("gold", "cosine", "pairs")), strict=True
    ):
        inside = [cosine(row) for row in rows if abs(row.score - middle) <= width / 2 + 1e-12]
        assert (mean, size) == pytest.approx((sum(inside) / len(inside), len(inside)), abs=1e-9)
    assert sum(evaluator.series()["bin_pairs"]) == len(rows)


def test_one_gold_score_is_one_band(pairs):
    assert bands([3.0, 3.0], [0.2, 0.4], 5) == {
        "bin_gold": [3.0],
        "bin_cosine": [pytest.approx(0.3)],
        "bin_pairs": [2.0],
    }


def test_vectors_without_direction_have_no_similarity_and_collapsed_ones_no_spread(pairs):
    pairs(PAIRS)
    for vector in ((0.0, 0.0), (math.nan, math.nan)):
        found = SimilarityProfile()(Points(dict.fromkeys("abcd", vector)))
        assert found == dict.fromkeys(SimilarityProfile.metrics, 0.0)
    found = SimilarityProfile()(Points(dict.fromkeys("abcd", (0.3, 0.4))))
    assert found["spread"] == pytest.approx(0.0, abs=1e-12)
    assert found["mean"] == pytest.approx(1.0)
