from __future__ import annotations

import pytest
import torch
from torch import nn

from cse_cli.recipe.schema import Train
from cse_cli.training.optimizer import LearningRate, make_optimizer, set_learning_rate
from registry.heads.mlp import Mlp as MlpHead


def test_linear_decay_reaches_zero_after_the_last_step() -> None:
    settings = Train(learning_rate=1.0)
    assert [LearningRate(settings, 4)(step) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_warm_up_rises_from_zero_to_the_peak() -> None:
    settings = Train(learning_rate=1.0, warmup_steps=2)
    assert [LearningRate(settings, 6)(step) for step in range(6)] == [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]


def test_constant_schedule() -> None:
    settings = Train(learning_rate=0.5, schedule="constant", warmup_steps=1)
    assert [LearningRate(settings, 3)(step) for step in range(3)] == [0.0, 0.5, 0.5]


def test_weight_decay_and_frozen_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    model[2].requires_grad_(False)
    decayed, spared = make_optimizer(model, Train(weight_decay=0.1)).param_groups
    assert [tuple(p.shape) for p in decayed["params"]] == [(3, 3)]
    assert [tuple(p.shape) for p in spared["params"]] == [(3,), (3,), (3,)]
    assert decayed["weight_decay"] == pytest.approx(0.1)
    assert spared["weight_decay"] == 0.0


def test_rates_change_at_milestones() -> None:
    settings = Train(learning_rate=1.0, schedule="constant", milestones=(2, 3), learning_rates=(0.5, 0.25))
    assert [LearningRate(settings, 5)(step) for step in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.25]


def test_heads_have_a_rate_of_their_own() -> None:
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "head": MlpHead()})
    model["head"].fit(2, None)  # type: ignore[operator]
    optimizer = make_optimizer(model, Train(learning_rate=0.1, head_learning_rate=0.5))
    set_learning_rate(optimizer, 0.2)
    assert [(len(g["params"]), g["lr"]) for g in optimizer.param_groups] == [(1, 0.2), (1, 0.2), (1, 1.0), (1, 1.0)]


@pytest.mark.parametrize("corrected", [False, True])
def test_adamw_of_earlier_libraries_by_hand(corrected: bool) -> None:
    """Without bias correction, as BERT; with ε before it, as transformers 4. An ε of 0.1 shows its place."""
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    settings = Train(learning_rate=0.1, weight_decay=0.01, epsilon=0.1, bias_correction=corrected)
    if corrected:
        settings = settings.model_copy(update={"epsilon_before_correction": True})
    optimizer = make_optimizer(nn.ParameterList([weight]), settings)
    by_hand, m, v = torch.tensor([[1.0, -2.0]], dtype=torch.float64), torch.zeros(2), torch.zeros(2)
    gradients = (torch.tensor([[0.3, -0.4]]), torch.tensor([[-0.1, 2.0]]), torch.tensor([[0.2, 0.0]]))
    for step, gradient in enumerate(gradients, 1):
        weight.grad = gradient.double()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient.double(), 0.999 * v + 0.001 * gradient.double() ** 2
        rate = 0.1 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step) if corrected else 0.1
        by_hand = by_hand - 0.1 * 0.01 * by_hand - rate * m / (v.sqrt() + 0.1)
    assert torch.allclose(weight.detach(), by_hand, rtol=1e-12, atol=0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.param_groups[0]["eps"] == 0.1


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("rmsprop", torch.optim.RMSprop), ("sgd", torch.optim.SGD)]
)
def test_other_optimizers(name: str, kind: type[torch.optim.Optimizer]) -> None:
    optimizer = make_optimizer(nn.Linear(2, 2), Train(optimizer=name, learning_rate=0.25))
    assert type(optimizer) is kind
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_running_means_keep_what_they_are_told(kind: str) -> None:
    model = nn.Linear(1, 1, bias=False)
    given = make_optimizer(model, Train(optimizer=kind, betas=(0.5, 0.25))).param_groups[0]["betas"]
    usual = make_optimizer(model, Train(optimizer=kind)).param_groups[0]["betas"]
    assert (given, usual) == ((0.5, 0.25), (0.9, 0.999))
