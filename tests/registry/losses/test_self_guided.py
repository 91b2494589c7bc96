import math

import pytest
import torch

from registry.heads.mlp import Mlp
from registry.losses.self_guided import SelfGuided
from registry.testing.materials import WidthOnly
from registry.tokens import Encoded, Tokens
from tests.registry.losses.literal import Headed, cosine
from tests.registry.losses.test_nt_xent import literal as nt_xent
from tests.support.errors import refuses

SIMPLER = ["nt_xent", "opt1", "opt2"]


def encoded(sentence, layers=None):
    none = torch.zeros(len(sentence), 1, dtype=torch.int64)
    states = sentence.unsqueeze(1)
    return Encoded(sentence, states, states, Tokens(none, none, none, none), layers=layers)


def headed():
    head = Mlp()
    encoder = Headed(5, head)
    torch.nn.init.normal_(head.linear.weight)
    return encoder


def draw(n, k, seed=0):
    g = torch.Generator().manual_seed(seed)
    sentence, layers = (torch.randn(n, *more, 5, generator=g, dtype=torch.float64) for more in ((), (k,)))
    return encoded(sentence), encoded(sentence, layers)


def literal(anchors, guides, tau, among=False):
    """One exponential at a time; `among` adds the other anchors to the negatives."""
    total = count = 0
    for i, c in enumerate(anchors):
        others = [math.exp(cosine(c, v) / tau) for j, own in enumerate(guides) if j != i for v in own]
        if among:
            others += [math.exp(cosine(c, other) / tau) for j, other in enumerate(anchors) if j != i]
        for v in guides[i]:
            positive = math.exp(cosine(c, v) / tau)
            total -= math.log(positive / (positive + sum(others)))
            count += 1
    return total / count


def test_value_by_hand_and_without_layers():
    # Two sentences on two axes, two layers alike, T = 0.5: each positive at e², two vectors of the other at e⁰.
    axes = torch.eye(2)
    frozen = encoded(axes, torch.stack([axes, 3 * axes], dim=1))
    value = SelfGuided(WidthOnly(2), temperature=0.5)(encoded(axes), frozen)
    assert value.item() == pytest.approx(math.log(math.exp(2) + 2) - 2, abs=1e-6)
    anchor, _ = draw(2, 1)
    with refuses("losses.no_layers", "frozen_copy"):
        SelfGuided(WidthOnly(5))(anchor, anchor)


@pytest.mark.parametrize(("n", "k", "tau"), [(1, 2, 0.2), (2, 1, 0.2), (6, 3, 0.01)])
def test_equals_the_literal_form_behind_the_shared_heads(n, k, tau):
    encoder = headed()
    anchor, frozen = draw(n, k, seed=n + k)
    guides = [[encoder.project(v.unsqueeze(0))[0].tolist() for v in own] for own in frozen.layers]
    expected = literal(anchor.sentence.tolist(), guides, tau)
    assert SelfGuided(encoder, temperature=tau)(anchor, frozen).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("objective", SIMPLER)
def test_simpler_objectives_equal_their_literal_form(objective):
    """With one layer nothing is left to chance."""
    encoder = headed()
    anchor, frozen = draw(4, 1)
    rows, guides = anchor.sentence.tolist(), encoder.project(frozen.layers[:, 0]).tolist()
    if objective == "nt_xent":
        expected = sum(nt_xent(rows, guides, [], 0.2)) / 2
    else:
        expected = literal(rows, [[v] for v in guides], 0.2, among=objective == "opt1")
    value = SelfGuided(encoder, objective, 0.2)(anchor, frozen)
    assert value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("objective", SIMPLER)
def test_simpler_objectives_draw_one_layer_a_sentence(objective):
    anchor, frozen = draw(2, 3)
    loss = SelfGuided(WidthOnly(5), objective, 0.5)
    choices = [
        loss(anchor, encoded(anchor.sentence, frozen.layers[torch.arange(2), torch.tensor(pair)].unsqueeze(1))).item()
        for pair in [(a, b) for a in range(3) for b in range(3)]
    ]
    found = {round(loss(anchor, frozen).item(), 9) for _ in range(200)}
    assert found == {round(value, 9) for value in choices}


def test_gradient_is_exact_and_trains_the_heads_from_both_sides():
    encoder = headed()
    anchor, frozen = draw(3, 2)
    loss = SelfGuided(encoder, temperature=0.3)
    inputs = [t.requires_grad_() for t in (anchor.sentence, frozen.layers)]
    assert torch.autograd.gradcheck(lambda c, v: loss(encoded(c), encoded(c, v)), inputs)
    loss(anchor, frozen).backward()
    assert encoder.head.linear.weight.grad.any()
    assert not list(loss.parameters())  # the heads are the encoder's
