from __future__ import annotations

import pytest
from torch import nn

from cse_cli.recipe.schema import Train
from cse_cli.training.optimizer import learning_rate, make_optimizer


def test_linear_decay_reaches_zero_after_the_last_step() -> None:
    settings = Train(learning_rate=1.0)
    assert [learning_rate(settings, step, 4) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_warm_up_rises_from_zero_to_the_peak() -> None:
    settings = Train(learning_rate=1.0, warmup_steps=2)
    assert [learning_rate(settings, step, 6) for step in range(6)] == [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]


def test_constant_schedule() -> None:
    settings = Train(learning_rate=0.5, schedule="constant", warmup_steps=1)
    assert [learning_rate(settings, step, 3) for step in range(3)] == [0.0, 0.5, 0.5]


def test_biases_and_norms_are_not_decayed_and_frozen_weights_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    model[2].requires_grad_(False)
    decayed, spared = make_optimizer(model, Train(weight_decay=0.1)).param_groups
    assert [tuple(p.shape) for p in decayed["params"]] == [(3, 3)]
    assert [tuple(p.shape) for p in spared["params"]] == [(3,), (3,), (3,)]
    assert decayed["weight_decay"] == pytest.approx(0.1)
    assert spared["weight_decay"] == 0.0
