"""Effects of the parts of a grid, by hand."""

from __future__ import annotations

import pytest

from benchmarks.part_effects import effects


def test_a_part_is_compared_in_the_same_company_seed_by_seed():
    scores = {
        ("a", "none"): {0: 50.0, 1: 51.0, 2: 52.0},
        ("a", "queue"): {0: 50.5, 1: 51.5, 2: 52.25},
        ("b", "none"): {0: 52.0, 1: 53.0, 2: 54.25},
        ("b", "queue"): {0: 53.5, 1: 53.5, 2: 55.0, 3: 99.0},  # a seed that the others lack
    }
    found = effects(scores)
    assert list(found) == [(0, "b"), (1, "queue")]
    loss, queue = found.values()
    assert loss.seeds == queue.seeds == (0, 1, 2)
    # Seed 0: ((52 − 50) + (53.5 − 50.5)) / 2; and so on.
    assert [after - before for before, after in zip(loss.first, loss.second, strict=True)] == [2.5, 2.0, 2.5]
    assert [after - before for before, after in zip(queue.first, queue.second, strict=True)] == [1.0, 0.5, 0.5]
    # Holm: the smaller of two p-values counts twice, the other once, and not less than that.
    assert loss.p_adjusted == pytest.approx(2 * loss.p)
    assert queue.p_adjusted == pytest.approx(max(queue.p, 2 * loss.p))
