import math

import numpy as np
import pytest
import torch

from registry.evaluators.singular_values import SingularValues, spectrum
from registry.resources.catalog import Pair
from tests.registry.evaluators.points import Points, scattered

RECTANGLE = Points({"a": [3.0, 0.0], "b": [0.0, 4.0]})


def all_of(count, width):
    """Return pairs of all sentences of `scattered`, and the matrix of every occurrence."""
    encode = scattered(count, width)
    rows = [Pair("", 0.0, str(i), str((3 * i + 1) % count)) for i in range(count)]
    return encode, rows, encode([text for row in rows for text in (row.first, row.second)]).numpy()


def test_value_by_hand(pairs):
    pairs([Pair("", 0.0, "a", "b")])
    evaluator = SingularValues()
    assert evaluator.series() == {}
    found = evaluator(RECTANGLE)
    # Singular values 4 and 3: shares 4/7 and 3/7.
    assert found["effective_rank"] == pytest.approx(math.exp(-(4 / 7) * math.log(4 / 7) - (3 / 7) * math.log(3 / 7)))
    assert found["effective_rank"] == pytest.approx(1.97963, abs=1e-5)
    assert found["largest_share"] == pytest.approx(4 / 7)
    assert evaluator.series()["singular_values"] == pytest.approx([1.0, 0.75])


def test_each_occurrence_or_each_sentence_of_the_last_call(pairs):
    pairs([Pair("", 0.0, "a", "b"), Pair("", 0.0, "a", "a")])
    evaluator = SingularValues()
    evaluator(RECTANGLE)
    assert evaluator.series()["singular_values"] == pytest.approx([1.0, 4 / (3 * math.sqrt(3))])
    once = SingularValues(sentences="distinct")
    once(RECTANGLE)
    assert once.series()["singular_values"] == pytest.approx([1.0, 0.75])
    pairs([Pair("", 0.0, "a", "b")])
    evaluator = SingularValues()
    evaluator(RECTANGLE)
    evaluator(Points({"a": [1.0, 0.0], "b": [0.0, 10.0]}))
    assert evaluator.series()["singular_values"] == pytest.approx([1.0, 0.1])


def test_normalized_or_centered_by_hand(pairs):
    pairs([Pair("", 0.0, "a", "b")])
    found = SingularValues(normalize=True)(RECTANGLE)
    assert found == pytest.approx({"effective_rank": 2.0, "largest_share": 0.5})
    found = SingularValues(center=True)(RECTANGLE)
    assert found == pytest.approx({"effective_rank": 1.0, "largest_share": 1.0}, abs=1e-9)


@pytest.mark.parametrize(
    ("count", "width", "normalize", "center"), [(3, 8, False, True), (20, 5, True, False), (50, 16, True, True)]
)
def test_equals_the_decomposition_of_the_whole_matrix(pairs, count, width, normalize, center):
    encode, rows, whole = all_of(count, width)
    pairs(rows)
    if normalize:
        whole = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    if center:
        whole = whole - whole.mean(axis=0)
    values = np.linalg.svd(whole, compute_uv=False)[: min(count, width)]
    evaluator = SingularValues(normalize=normalize, center=center)
    found = evaluator(encode)
    assert evaluator.series()["singular_values"] == pytest.approx((values / values[0]).tolist(), abs=1e-9)
    share = values[values > 0] / values.sum()
    assert found["effective_rank"] == pytest.approx(math.exp(-(share * np.log(share)).sum()), abs=1e-9)
    assert found["largest_share"] == pytest.approx(share[0], abs=1e-9)


@pytest.mark.parametrize("center", [False, True])
def test_chunks_change_nothing(center):
    rows = torch.stack(list(scattered(60, 7).vectors.values()))
    counts = torch.arange(60).remainder(3).double() + 1
    whole = spectrum(rows, counts, center)
    for chunk in (1, 2, 7, 13, 59, 60, 1000):
        torch.testing.assert_close(spectrum(rows, counts, center, chunk), whole, rtol=0, atol=1e-9)


def test_values_far_below_the_largest_are_kept():
    """A Gram matrix would lose what is 1e-8 of the largest."""
    rows = (
        torch.diag(torch.tensor([1.0, 1e-5, 1e-11], dtype=torch.float64))
        @ torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    )
    found = spectrum(rows, torch.ones(3, dtype=torch.float64), center=False, chunk=1)
    assert found.tolist() == pytest.approx([1.0, 1e-5, 1e-11], rel=1e-4)
    # A sentence that is not there counts nothing.
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    assert spectrum(rows, torch.tensor([1.0, 0.0]).double(), center=False).tolist() == pytest.approx([3.0, 0.0])


def test_collapsed_vectors(pairs):
    pairs([Pair("", 0.0, "a", "b"), Pair("", 0.0, "c", "a")])
    evaluator = SingularValues()
    same = evaluator(Points(dict.fromkeys("abc", (1.0, 2.0, 2.0))))
    assert same == pytest.approx({"effective_rank": 1.0, "largest_share": 1.0}, abs=1e-6)
    assert evaluator(Points(dict.fromkeys("abc", (0.0, 0.0, 0.0)))) == {"effective_rank": 0.0, "largest_share": 0.0}
    assert evaluator.series() == {"singular_values": [0.0, 0.0, 0.0]}
    assert evaluator(Points(dict.fromkeys("abc", (math.nan,) * 3)))["effective_rank"] == 0.0
