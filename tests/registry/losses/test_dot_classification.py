import math

import pytest
import torch

from registry.losses.dot_classification import DotClassification
from tests.registry.losses.literal import draw
from tests.support.errors import refuses


def entropy(anchor, positive, i, j, same):
    """−log of the probability that the sigmoid of the dot product gives to what is so."""
    dot = sum(x * y for x, y in zip(anchor[i].tolist(), positive[j].tolist(), strict=True))
    probability = 1 / (1 + math.exp(-dot))
    return -math.log(probability if same else 1 - probability)


def test_value_by_hand():
    # Two sentences, K = 1: dot products 2 and 3 of the same, 0 and −1 of different ones.
    anchor, positive = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    cells = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(-3)), math.log(2), math.log(1 + math.exp(-1))]
    assert DotClassification(1)(anchor, positive).item() == pytest.approx(sum(cells) / 4, abs=1e-6)
    assert DotClassification(1, reduction="sum")(anchor, positive).item() == pytest.approx(sum(cells), abs=1e-6)


@pytest.mark.parametrize(("rows", "negatives"), [(1, 3), (2, 7), (9, 3)])
def test_all_pairs(rows, negatives):
    anchor, positive, *_ = draw(rows, 0, seed=rows)
    cells = [entropy(anchor, positive, i, i, True) for i in range(rows)]
    for i in range(rows):
        others = [(i + k) % rows for k in range(1, negatives + 1)]
        cells += [entropy(anchor, positive, i, j, False) for j in dict.fromkeys(others[: rows - 1])]
    value = DotClassification(negatives, reduction="sum")(anchor, positive).item()
    assert value == pytest.approx(sum(cells), abs=1e-9)
    assert DotClassification(negatives)(anchor, positive).item() == pytest.approx(sum(cells) / len(cells), abs=1e-9)


@pytest.mark.parametrize(("rows", "negatives", "positives"), [(16, 7, 2), (4, 7, 1), (9, 2, 3)])
def test_separate_pairs(rows, negatives, positives):
    """The authors' 16 pairs: 2 positive ones, and 14 of sentences that are in no positive one."""
    anchor, positive, *_ = draw(rows, 0, seed=rows)
    cells = [entropy(anchor, positive, i, i, True) for i in range(positives)]
    others = list(range(positives, rows))
    cells += [entropy(anchor, positive, i, j, False) for i, j in zip(others, others[1:] + others[:1], strict=True)]
    assert len(cells) == rows
    value = DotClassification(negatives, "separate", "sum")(anchor, positive).item()
    assert value == pytest.approx(sum(cells), abs=1e-9)
    mean = DotClassification(negatives, "separate")(anchor, positive).item()
    assert mean == pytest.approx(sum(cells) / rows, abs=1e-9)


def test_too_few_rows_and_dot_products_in_the_hundreds():
    with refuses("losses.batch_too_small", 2):
        DotClassification(pairs="separate")(*draw(2, 0)[:2])
    # σ is 1 to the last bit there: the loss of a negative pair is the dot product itself, its gradient 1.
    anchor, positive = torch.full((2, 1), 20.0), torch.full((2, 1), 20.0, requires_grad=True)
    value = DotClassification(1, reduction="sum")(anchor, positive)
    value.backward()
    assert value.item() == pytest.approx(800.0, abs=1e-4)
    assert positive.grad is not None
    assert positive.grad.flatten().tolist() == [20.0, 20.0]
