from __future__ import annotations

import math

import pytest
import torch

from cse_cli.training.health import (
    PATIENCE,
    CollapseAlarm,
    effective_rank,
    loss_not_finite,
    mean_cosine,
    traceable_distance,
)
from registry.encoders.ema import Ema
from registry.queues.fifo import Fifo
from registry.types import Queue
from tests.support.fakes import FakeEncoder


def test_mean_cosine_by_hand() -> None:
    # cosines of (x,y) (x,-x) (y,-x): 0, -1, 0 → mean -1/3; lengths do not matter
    vectors = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    assert mean_cosine(vectors) == pytest.approx(-1 / 3)
    assert mean_cosine(torch.ones(5, 3)) == pytest.approx(1.0)


def test_effective_rank_by_hand() -> None:
    assert effective_rank(torch.eye(4)) == pytest.approx(4.0)
    assert effective_rank(torch.ones(6, 4)) == pytest.approx(1.0, abs=1e-4)
    # singular values 3 and 1 → shares 3/4, 1/4
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(math.exp(entropy))


def test_the_alarm_needs_patience_and_speaks_once() -> None:
    alarm = CollapseAlarm(0.9)
    collapsed = torch.ones(8, 4) + 1e-3 * torch.randn(8, 4)
    warnings = [alarm.check(collapsed)[1] for _ in range(PATIENCE + 2)]
    assert [w is not None for w in warnings] == [i == PATIENCE - 1 for i in range(PATIENCE + 2)]


def test_one_healthy_check_resets_the_alarm() -> None:
    alarm = CollapseAlarm(0.9)
    collapsed, healthy = torch.ones(8, 4), torch.eye(8)
    for vectors in [collapsed] * (PATIENCE - 1) + [healthy] + [collapsed] * (PATIENCE - 1):
        assert alarm.check(vectors)[1] is None


@pytest.mark.parametrize(
    ("decay", "length", "batch", "expected"),
    [(0.85, 512, 64, 1 / 0.15 + 8), (0.85, 512, 32, 22.667), (0.5, 100, 64, 2 + 1.5625), (0.0, 64, 64, 2.0)],
)
def test_traceable_distance_by_hand(decay: float, length: int, batch: int, expected: float) -> None:
    """MoCoSE, eq. 4: 14.67 for its base model, about 22 for the large one."""
    target = Ema(FakeEncoder(), decay=decay, share=[])
    assert traceable_distance(target, Fifo("key", length=length), batch) == pytest.approx(expected, abs=1e-3)


def test_traceable_distance_without_momentum() -> None:
    assert traceable_distance(FakeEncoder(), Fifo("anchor", length=416), 64) == 6.5
    assert traceable_distance(Ema(FakeEncoder(), decay=1.0, share=[]), Fifo("key"), 64) is None
    assert traceable_distance(FakeEncoder(), Queue(), 64) is None


def test_losses_that_are_not_finite_are_named():
    later = loss_not_finite(math.nan, 8, {"a": math.nan, "b": 0.5}, ["  last good checkpoint: step 5"])
    named = ["the loss is nan at step 8: caused by 'a'", "  loss a: nan", "  loss b: 0.5"]
    assert later.message.split("\n") == [*named, "  last good checkpoint: step 5"]
    assert "train.learning_rate" in later.next_action
    first = loss_not_finite(math.nan, 1, {"a": math.inf, "b": math.nan})
    assert "caused by 'a' and 'b'\n  loss a: inf\n" in first.message
    assert first.next_action.startswith("check 'a' and 'b' in the recipe"), "no update has happened yet"
    sum_only = loss_not_finite(math.inf, 2, {"a": 1e38, "b": 3e38})
    assert "each loss is finite, but their weighted sum is not" in sum_only.message
