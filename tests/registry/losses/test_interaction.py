import math

import pytest
import torch

from registry import LOSSES
from registry.losses.interaction import Interaction
from registry.testing.materials import WidthOnly
from tests.registry.losses.literal import draw

HEADS = ("scalar", "elementwise", "two_class")


def loss_of(dim, head="scalar", seed=0):
    torch.manual_seed(seed)
    loss = Interaction(WidthOnly(dim), head).double()
    torch.nn.init.normal_(loss.linear.weight)
    torch.nn.init.normal_(loss.linear.bias)
    return loss


def literal(loss, same, different):
    """Equations 7 to 9, one exponential at a time."""
    weight, bias = loss.linear.weight.tolist(), loss.linear.bias.tolist()

    def r(h):
        return [b + sum(w * x for w, x in zip(row, h, strict=True)) for row, b in zip(weight, bias, strict=True)]

    total = 0.0
    for y, z in zip(same.tolist(), different.tolist(), strict=True):
        ry, rz = r(y), r(z)
        if loss.head == "two_class":
            right_y = math.exp(ry[1]) / (math.exp(ry[0]) + math.exp(ry[1]))
            right_z = math.exp(rz[0]) / (math.exp(rz[0]) + math.exp(rz[1]))
            total -= (math.log(right_y) + math.log(right_z)) / 2
        else:
            terms = [math.log(math.exp(a) / (math.exp(a) + math.exp(b))) for a, b in zip(ry, rz, strict=True)]
            total -= sum(terms) / len(terms)
    return total / len(same)


def test_value_by_hand():
    # W₃ = (1, −1): r_Y = 2 − 0 and 1 − 1, r_Z = 0 − 1 and 1 − 1: log(1 + e⁻³) and log 2.
    loss = Interaction(WidthOnly(2))
    loss.load_state_dict({"linear.weight": torch.tensor([[1.0, -1.0]]), "linear.bias": torch.tensor([7.0])})
    value = loss(torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    assert value.item() == pytest.approx((math.log(1 + math.exp(-3)) + math.log(2)) / 2, abs=1e-6)
    # Logits (different, same): of Y (0, 2), right with 1/(1 + e⁻²); of Z (0, −1), right with 1/(1 + e⁻¹).
    loss = Interaction(WidthOnly(1), "two_class")
    loss.load_state_dict({"linear.weight": torch.tensor([[0.0], [1.0]]), "linear.bias": torch.zeros(2)})
    value = loss(torch.tensor([[2.0]]), torch.tensor([[-1.0]]))
    assert value.item() == pytest.approx((math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2, abs=1e-6)


@pytest.mark.parametrize(("n", "dim", "head"), [(1, 5, "scalar"), (7, 1, "elementwise"), (7, 5, "two_class")])
def test_matches_the_equation(n, dim, head):
    loss, (same, different, *_) = loss_of(dim, head, seed=n), draw(n, 0, dim, seed=dim)
    assert loss(same, different).item() == pytest.approx(literal(loss, same, different))


@pytest.mark.parametrize("head", HEADS)
def test_far_scores_stay_finite(head):
    loss = Interaction(WidthOnly(2), head)
    torch.nn.init.ones_(loss.linear.weight)
    same, different = torch.full((2, 2), -1e4), torch.full((2, 2), 1e4)
    same.requires_grad_()
    value = loss(same, different)
    value.backward()
    expected = math.log(2) if head == "two_class" else 4e4  # both logits of a class equal: nothing is told apart
    assert value.item() == pytest.approx(expected)
    assert torch.isfinite(same.grad).all()


def test_takes_the_width_and_no_weights_from_the_encoder_the_recipe_names():
    loss = LOSSES["interaction"].build({"encoder": "other"}, {"other": WidthOnly(9), "online": WidthOnly(4)})
    assert loss.linear.in_features == 9
    encoder = WidthOnly(4)
    encoder.layer = torch.nn.Linear(4, 4)
    assert [name for name, _ in Interaction(encoder).named_parameters()] == ["linear.weight", "linear.bias"]
