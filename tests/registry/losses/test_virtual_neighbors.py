import math

import pytest
import torch

from registry.heads.feed_forward import FeedForward
from registry.losses.virtual_neighbors import VirtualNeighbors
from registry.testing.materials import WidthOnly
from tests.registry.losses.literal import Headed, agree
from tests.registry.losses.neighborhood import both_ways, hardest, moved_by, neighbors, project, unit
from tests.support.errors import refuses


def headed():
    torch.manual_seed(3)
    return Headed(5, FeedForward(hidden=8, width=3, activation="gelu"))  # smooth: differences approximate its gradient


def draw(n, seed=0):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "k", "epsilon", "tau"), [(2, 1, 0.5, 0.2), (5, 2, 15.0, 0.5), (5, 4, 0.5, 0.2)])
def test_equals_the_literal_form(n, k, epsilon, tau):
    encoder, e = headed(), draw(n, seed=n)
    rows, near = e.tolist(), neighbors(e.tolist(), k)
    torch.manual_seed(9)
    value = VirtualNeighbors(encoder, k, epsilon, tau)(e)
    torch.manual_seed(9)
    first = [unit([x - 0.5 for x in row]) for row in torch.rand(n, 5, dtype=torch.float64).tolist()]
    directions = hardest(encoder, rows, first, near, epsilon, tau)
    plain, moved = project(encoder, rows), project(encoder, moved_by(rows, directions, epsilon))
    assert value.item() == pytest.approx(both_ways(plain, moved, near, tau), abs=1e-6)


def as_the_authors(e, weights, k, epsilon, tau, start):
    """Value and direction by the authors' arithmetic, with masks of N × N − 1 cells instead of indices.

    From learners/contrastive_utils.py:36-81 and learners/vat_utils.py:50-74 of amazon-science/sentence-representations.
    """
    n, off = len(e), ~torch.eye(len(e), dtype=torch.bool)

    def f(x):
        out = (x @ weights[0].T).clamp(min=0) @ weights[1].T
        return out / out.norm(dim=1, keepdim=True)

    near = (e @ e.T)[off].view(n, n - 1).topk(k, dim=1).indices
    hard = torch.zeros(n, n - 1).scatter(1, near, 1.0) > 0
    with torch.no_grad():
        clean = f(e)
    d = (start - 0.5) / ((start - 0.5).norm(dim=1, keepdim=True) + 1e-8)
    d.requires_grad_()
    moved = f(e + epsilon * d)
    positive = torch.exp((clean * moved).sum(1) / tau)
    negative = torch.exp(moved @ clean.T / tau)[off].view(n, n - 1)[hard].view(n, k).sum(1)
    (g,) = torch.autograd.grad(-torch.log(positive / (negative + positive)).mean(), d)
    direction = g / (g.norm(dim=1, keepdim=True) + 1e-8)

    moved = f(e + epsilon * direction)
    rows = torch.cat([clean, moved])
    positive = torch.exp((clean * moved).sum(1) / tau).repeat(2)
    cells = torch.exp(rows @ rows.T / tau)[off.repeat(2, 2)].view(2 * n, 2 * (n - 1))
    negative = cells[hard.repeat(2, 2)].view(2 * n, 2 * k).sum(1)
    return -torch.log(positive / (negative + positive)).mean(), direction


@pytest.mark.parametrize(("n", "k", "epsilon", "tau"), [(6, 2, 1.0, 0.05), (20, 16, 15.0, 0.05), (9, 8, 3.0, 0.2)])
def test_equals_the_authors_arithmetic(n, k, epsilon, tau):
    """Value, gradient of the head, and direction of the perturbation."""
    torch.manual_seed(1)
    encoder, e = Headed(5, FeedForward(hidden=8, width=3, bias=False)), 3 * draw(n, seed=n)
    weights = [encoder.head.first.weight, encoder.head.second.weight]
    torch.manual_seed(9)
    start = torch.rand(n, 5, dtype=torch.float64)
    expected, direction = as_the_authors(e, weights, k, epsilon, tau, start)
    loss = VirtualNeighbors(encoder, k, epsilon, tau)
    torch.manual_seed(9)
    value = loss(e)
    agree(value, expected, weights)
    torch.manual_seed(9)
    near = torch.tensor(neighbors(e.tolist(), k))
    assert torch.allclose(loss._hardest(e, encoder.project(e).detach(), near), direction, atol=1e-6)


def test_value_by_hand():
    # No perturbation, no head: three unit vectors at 0°, 90° and 45°; the nearest of each at 45°, cosine 1/√2, τ = 0.5.
    # It counts twice, in each of the two equal views.
    e = torch.tensor([[1.0, 0.0], [0.0, 1.0], [math.sqrt(0.5), math.sqrt(0.5)]])
    value = VirtualNeighbors(WidthOnly(2), neighbors=1, epsilon=0.0, temperature=0.5)(e)
    assert value.item() == pytest.approx(math.log(1 + 2 * math.exp((math.sqrt(0.5) - 1) / 0.5)), abs=1e-6)


@pytest.mark.parametrize("detached", [True, False])
def test_gradient_reaches_the_heads_and_where_asked_the_encoder(detached):
    encoder, e = headed(), draw(6).requires_grad_()
    VirtualNeighbors(encoder, 2, 1.0, 0.2, detached)(e).backward()
    assert encoder.head.first.weight.grad.any()
    assert (e.grad is None) == detached
    if not detached:
        assert e.grad.any()


@pytest.mark.slow
def test_gradient_is_exact_where_the_perturbation_is_fixed_and_small_batches_are_refused():
    loss = VirtualNeighbors(headed(), 2, 0.0, 0.2, detached=False)
    assert torch.autograd.gradcheck(loss, draw(4).requires_grad_())
    with refuses("losses.batch_too_small", "neighbors = 16", 8, "at most 7"):
        VirtualNeighbors(WidthOnly(5))(draw(8))


def test_the_normal_start():
    """VA5: from a normal distribution, then length 1."""
    encoder, e = headed(), draw(4)
    near = neighbors(e.tolist(), 2)
    torch.manual_seed(4)
    loss = VirtualNeighbors(encoder, 2, 1.0, 0.5, start="normal")
    found = loss._hardest(e, encoder.project(e).detach(), torch.tensor(near))
    torch.manual_seed(4)
    first = [unit(row) for row in torch.randn(4, 5, dtype=torch.float64).tolist()]
    expected = hardest(encoder, e.tolist(), first, near, 1.0, 0.5)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-5)
