from typing import get_args

import pytest
import torch

from registry.encoders.pooling import Pooling, masked_mean, needs_all_states, pool

MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])
# Three states of two sentences, three tokens, one number each.
STATES = [
    torch.tensor([[[1.0], [3.0], [99.0]], [[0.0], [3.0], [6.0]]]),
    torch.tensor([[[5.0], [7.0], [99.0]], [[1.0], [1.0], [4.0]]]),
    torch.tensor([[[2.0], [8.0], [99.0]], [[9.0], [3.0], [0.0]]]),
]


@pytest.mark.parametrize(
    ("pooling", "first", "expected"),
    [
        ("cls", 0, [2.0, 9.0]),
        ("mean", 0, [5.0, 4.0]),
        ("last2", 0, [(6 + 5) / 2, (2 + 4) / 2]),
        ("first_last", 0, [(2 + 5) / 2, (3 + 4) / 2]),
        ("first_last", 1, [(6 + 5) / 2, (2 + 4) / 2]),
    ],
)
def test_worked_by_hand(pooling, first, expected):
    assert pool(pooling, STATES, MASK, first).flatten().tolist() == expected


def test_only_averages_of_layers_need_every_state():
    assert [p for p in get_args(Pooling) if needs_all_states(p)] == ["last2", "first_last"]


def test_rows_without_tokens_are_zero_not_nan():
    assert masked_mean(torch.ones(1, 2, 3), torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]
