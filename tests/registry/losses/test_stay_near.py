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


def flat(weights):
    return weights.detach().flatten().tolist()


def move(encoder):
    """Shift the weights of the linear layer alone, and the head's, which does not count."""
    with torch.no_grad():
        encoder.linear.weight += 2.0
        encoder.linear.bias -= 1.0
        encoder.heads["mlp"].linear.weight += 5.0


def test_value_by_hand_without_frozen_weights():
    # Nine weights moved by 2, three biases by 1, the table by nothing.
    encoder = encoder_of()
    loss = StayNear(encoder)
    assert loss().item() == 0.0
    move(encoder)
    assert loss().item() == pytest.approx(4 * 9 + 3, abs=1e-12)
    assert not list(loss.parameters())
    assert not loss.state_dict()
    encoder.linear.requires_grad_(False)
    loss = StayNear(encoder)
    move(encoder)
    assert loss().item() == 0.0
    encoder.table.requires_grad_(False)
    with refuses("losses.no_trained_weights"):
        StayNear(encoder)


def test_value_and_gradient_equal_the_sum_of_squared_norms_in_the_authors_code():
    """SG-OPT's `loss.py:277-281`: the 2-norm of each tensor's difference, squared, in sum."""
    encoder = encoder_of()
    loss = StayNear(encoder)
    trained = {name: p for name, p in encoder.named_parameters() if not name.startswith("heads.")}
    starts = {name: p.detach().clone() for name, p in trained.items()}
    torch.manual_seed(4)
    with torch.no_grad():
        for p in encoder.parameters():
            p += 0.01 * torch.randn_like(p)
    value = loss()
    value.backward()
    expected = 0.0
    for name, p in trained.items():
        distance = math.sqrt(sum((now - start) ** 2 for now, start in zip(flat(p), flat(starts[name]), strict=True)))
        expected += distance**2
        assert torch.allclose(p.grad, 2 * (p - starts[name]), rtol=1e-12)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert encoder.heads["mlp"].linear.weight.grad is None


def test_a_recipe_needs_another_loss_beside_it():
    dropped = ["losses.info_nce", "views"]
    with refuses("recipe.no_loss", "losses.stay_near"):
        load("simcse_en", ["losses.stay_near.weight=0.1"], dropped)
    assert "stay_near" in load("simcse_en", ["losses.stay_near.weight=0.1"]).recipe.losses
