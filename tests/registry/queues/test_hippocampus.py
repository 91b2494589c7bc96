import math

import pytest
import torch

from registry.queues.hippocampus import Hippocampus
from tests.registry.queues.literal import LiteralQueue, StepOf, batches, bound


def filled(sizes, **parameters):
    queue = bound(Hippocampus("anchor", **parameters))
    for batch in batches(sizes):
        queue.after_step(StepOf(batch))
    return queue


def weights(queue):
    return queue.negatives().log_weights.exp().tolist()


def test_equation_four_for_full_batches():
    """pₘ = 1 − λ⌈m/N⌉ with m counted from the newest."""
    rate, n, length = 0.013, 5, 23
    queue = filled([n] * 8, length=length, forgetting_rate=rate)
    expected = [1 - rate * math.ceil(m / n) for m in range(length, 0, -1)]
    assert weights(queue) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("order", ["newest_first", "oldest_first"])
@pytest.mark.parametrize(("length", "sizes"), [(1, [7]), (6, [4, 4, 1, 4, 2]), (100, [12, 3])])
def test_matches_the_list(order, length, sizes):
    queue, expected = bound(Hippocampus("anchor", length, 0.03, order)), LiteralQueue(length)
    for batch in batches(sizes):
        queue.after_step(StepOf(batch))
        expected.push(batch)
        ages = expected.ages()
        if order == "oldest_first":
            ages = [max(ages) + 1 - age for age in ages]
        assert torch.allclose(queue.negatives().vectors, expected.vectors(), atol=1e-6)
        assert weights(queue) == pytest.approx([1 - 0.03 * age for age in ages], abs=1e-6)


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 1.0])
def test_entries_without_weight_are_off(rate):
    queue = filled([1] * 14, length=12, forgetting_rate=rate)
    limit = round(1 / rate)  # λ·age = 1 exactly here: already off
    for age, log_weight in zip(range(12, 0, -1), queue.negatives().log_weights.tolist(), strict=True):
        if age >= limit:
            assert log_weight == -math.inf
        else:
            assert log_weight == pytest.approx(math.log(1 - rate * age), abs=1e-5)


def test_value_by_hand():
    queue = bound(Hippocampus("anchor", 6, 0.1, initial="random"))
    start = queue.negatives().vectors
    assert weights(queue) == pytest.approx([0.9] * 6)
    queue.after_step(StepOf(batches([2])[0]))
    assert weights(queue) == pytest.approx([0.8] * 4 + [0.9] * 2)
    assert torch.equal(queue.negatives().vectors[:4], start[2:])
    queue = filled([2, 1, 2], length=4, forgetting_rate=0.1)
    assert weights(queue) == pytest.approx([0.7, 0.8, 0.9, 0.9])
    assert weights(filled([3] * 4, length=8, forgetting_rate=0.0)) == [1.0] * 8
