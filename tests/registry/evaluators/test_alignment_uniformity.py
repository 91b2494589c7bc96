import math
import random

import pytest
import torch

from registry.evaluators.alignment_uniformity import AlignmentUniformity, uniformity
from registry.evaluators.pairs import unit
from registry.resources.catalog import Pair
from tests.registry.evaluators.points import Points, on_circle, scattered
from tests.support.errors import refuses

TRIANGLE = on_circle(a=0, b=60, c=180)
"""Squared distances: a to b 1, a to c 4, b to c 3."""
PAIRS = [Pair("", 5.0, "a", "b"), Pair("", 4.0, "a", "c"), Pair("", 1.0, "b", "c")]


def literal(rows, encode, threshold=4.0, alpha=2.0, t=2.0, batch_size=64, distinct=False):
    """Return the numbers as the definitions say them, pair by pair."""

    def at(text):
        vector = [float(x) for x in encode([text])[0]]
        return [x / max(math.sqrt(sum(y * y for y in vector)), 1e-8) for x in vector]

    def squared(one, other):
        return sum((x - y) ** 2 for x, y in zip(one, other, strict=True))

    def spread(points):
        all_pairs = [(i, j) for i in range(len(points)) for j in range(i)]
        return math.log(sum(math.exp(-t * squared(points[i], points[j])) for i, j in all_pairs) / len(all_pairs))

    texts = [text for row in rows for text in (row.first, row.second)]
    close = [squared(at(r.first), at(r.second)) ** (alpha / 2) for r in rows if r.score > threshold]
    firsts = [at(row.first) for row in rows]
    batches = [firsts[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    full = [batch for batch in batches if len(batch) == batch_size] or [firsts]
    return {
        "alignment": sum(close) / len(close),
        "uniformity": spread([at(text) for text in (dict.fromkeys(texts) if distinct else texts)]),
        "uniformity_batched": sum(map(spread, full)) / len(full),
    }


def test_value_by_hand(pairs):
    pairs(PAIRS)
    near = math.exp(-2) + math.exp(-8) + math.exp(-6)
    found = AlignmentUniformity()(TRIANGLE)
    assert found["alignment"] == pytest.approx(1.0)
    # Each sentence stands twice: of 15 pairs of places, 3 hold the same sentence.
    assert found["uniformity"] == pytest.approx(math.log((3 + 4 * near) / 15)) == pytest.approx(-1.4404, abs=1e-4)
    # One batch, a a b: once no distance, twice 1.
    assert found["uniformity_batched"] == pytest.approx(math.log((1 + 2 * math.exp(-2)) / 3))
    found = AlignmentUniformity(sentences="distinct")(TRIANGLE)
    near = math.exp(-2) + math.exp(-8) + math.exp(-6)
    assert found["uniformity"] == pytest.approx(math.log(near / 3)) == pytest.approx(-3.0780, abs=1e-4)
    assert AlignmentUniformity(batch_size=2)(TRIANGLE)["uniformity_batched"] == pytest.approx(0.0)  # a a, not b
    pairs(PAIRS[1:])
    assert AlignmentUniformity(threshold=3.0, batch_size=2)(TRIANGLE)["uniformity_batched"] == pytest.approx(-2.0)


def test_the_threshold_is_strict_unless_told_and_scope_positive_leaves_others_out(pairs):
    pairs(PAIRS)
    assert AlignmentUniformity(inclusive=True)(TRIANGLE)["alignment"] == pytest.approx((1 + 4) / 2)
    assert AlignmentUniformity(inclusive=True, alpha=1.0)(TRIANGLE)["alignment"] == pytest.approx((1 + 2) / 2)
    assert AlignmentUniformity(threshold=0.5)(TRIANGLE)["alignment"] == pytest.approx((1 + 4 + 3) / 3)
    found = AlignmentUniformity(threshold=3.0, scope="positive")(TRIANGLE)
    # a b a c: a with a 0, a with b twice 1, a with c twice 4, b with c 3; the batch is a a.
    near = 1 + 2 * math.exp(-2) + 2 * math.exp(-8) + math.exp(-6)
    assert found["uniformity"] == pytest.approx(math.log(near / 6))
    assert found["uniformity_batched"] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("count", "width", "batch_size", "alpha", "t", "distinct"),
    [(2, 1, 64, 2.0, 2.0, False), (9, 4, 5, 1.0, 0.5, True), (40, 8, 5, 3.0, 4.0, False)],
)
def test_equals_the_definition_written_out(pairs, count, width, batch_size, alpha, t, distinct):
    rng = random.Random(count)
    names = [str(place) for place in range(count)]
    rows = [Pair("", rng.choice([1.0, 4.0, 4.5, 5.0]), *rng.choices(names, k=2)) for _ in range(2 * count)]
    rows += [Pair("", 5.0, names[0], names[1])]
    pairs(rows)
    encode = scattered(count, width)
    how = "distinct" if distinct else "occurrences"
    found = AlignmentUniformity(alpha=alpha, t=t, sentences=how, batch_size=batch_size)(encode)
    wanted = literal(rows, encode, alpha=alpha, t=t, batch_size=batch_size, distinct=distinct)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 17, 40])
def test_blocks_change_nothing(rows):
    points = unit(torch.stack(list(scattered(rows, 6).vectors.values())))
    counts = torch.arange(rows).remainder(4).double()
    counts[:2] = 1
    repeated = points.repeat_interleave(counts.long(), dim=0)
    wanted = float(torch.pdist(repeated).square().mul(-2).exp().mean().log())
    for block in (1, 2, 7, 64, 10_000):
        assert uniformity(points, 2.0, counts, block) == pytest.approx(wanted, abs=1e-9)
        assert uniformity(repeated, 2.0, block=block) == pytest.approx(wanted, abs=1e-9)


def test_norms_are_clamped_and_the_sharpest_kernel_stays_finite(pairs):
    pairs([Pair("", 5.0, "a", "b"), Pair("", 1.0, "a", "b")])
    found = AlignmentUniformity()(Points({"a": [1.0, 0.0], "b": [1e-9, 0.0]}))
    assert found["alignment"] == pytest.approx(0.9**2)  # 1e-9 / 1e-8 is 0.1
    pairs([Pair("", 5.0, "a", "b"), Pair("", 5.0, "a", "b")])
    found = AlignmentUniformity(t=100.0, sentences="distinct")(on_circle(a=0, b=180))
    assert found["uniformity"] == pytest.approx(-400.0)


@pytest.mark.parametrize("vector", [[0.0, 0.0], [0.3, -0.4], [math.inf, math.nan]])
def test_collapsed_vectors(pairs, vector):
    pairs(PAIRS)
    found = AlignmentUniformity()(Points(dict.fromkeys("abc", vector)))
    assert found == pytest.approx({"alignment": 0.0, "uniformity": 0.0, "uniformity_batched": 0.0}, abs=1e-12)


def test_too_few_pairs_and_sentences_are_told(pairs):
    pairs(PAIRS[1:])
    with refuses("evaluators.no_such_score", "'stsb/all'", "above 4", "highest: 4", "inclusive = true"):
        AlignmentUniformity()(TRIANGLE)
    with refuses("evaluators.no_such_score", "at least 4.5"):
        AlignmentUniformity(threshold=4.5, inclusive=True)(TRIANGLE)
    pairs(PAIRS)
    with refuses("evaluators.too_few_rows", "1 and 2"):
        AlignmentUniformity(scope="positive")(TRIANGLE)
    pairs([Pair("", 5.0, "a", "a")] * 3)
    with refuses("evaluators.too_few_rows", "3 and 1"):
        AlignmentUniformity(sentences="distinct")(TRIANGLE)
