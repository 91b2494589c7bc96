import math

import pytest
import torch
from torch import nn

from cse_cli.recipe.load import load
from registry.heads.mlp import Mlp
from registry.losses.stay_near import StayNear
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder


def encoder_of(width=3):
    encoder = FakeEncoder(width).double()
    head = Mlp()
    head.fit(width, encoder)
    encoder.heads = nn.ModuleDict({"mlp": head.double()})
    return encoder


def move(encoder):
    """Shift the weights of the linear layer alone, and the head's, which does not count."""
    with torch.no_grad():
        encoder.linear.weight += 2.0
        encoder.linear.bias -= 1.0
        encoder.heads["mlp"].linear.weight += 5.0


@pytest.mark.parametrize(("power", "expected"), [(1, 2 * 3 + math.sqrt(3)), (2, 4 * 9 + 3)])
def test_value_by_hand(power, expected):
    # Nine weights moved by 2, three biases by 1, the table by nothing.
    encoder = encoder_of()
    loss = StayNear(encoder, power)
    assert loss().item() == 0.0
    move(encoder)
    assert loss().item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("power", [1, 2])
def test_gradient_by_hand(power):
    encoder = encoder_of()
    loss = StayNear(encoder, power)
    loss().backward()  # at the start all gradients are 0, and none is nan
    assert not encoder.linear.weight.grad.any()
    assert not encoder.table.weight.grad.any()
    encoder.zero_grad()
    move(encoder)
    loss().backward()
    factor = 1 / 6 if power == 1 else 2.0  # (θ − θ⁰)/‖θ − θ⁰‖ with a norm of 6, or 2(θ − θ⁰)
    assert torch.allclose(encoder.linear.weight.grad, torch.full((3, 3), 2 * factor, dtype=torch.float64))
    assert encoder.heads["mlp"].linear.weight.grad is None


def test_frozen_weights_do_not_count():
    encoder = encoder_of()
    encoder.linear.requires_grad_(False)
    loss = StayNear(encoder)
    move(encoder)
    assert loss().item() == 0.0
    encoder.table.requires_grad_(False)
    with refuses("losses.no_trained_weights"):
        StayNear(encoder)


def test_owns_no_weights_and_fills_no_checkpoint():
    loss = StayNear(encoder_of())
    assert not list(loss.parameters())
    assert not loss.state_dict()


def test_a_recipe_needs_another_loss_beside_it():
    dropped = ["losses.info_nce", "views"]
    with refuses("recipe.no_loss", "losses.stay_near"):
        load("simcse_en", ["losses.stay_near.weight=0.1"], dropped)
    assert "stay_near" in load("simcse_en", ["losses.stay_near.weight=0.1"]).recipe.losses
