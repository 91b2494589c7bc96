import math

import pytest
import torch
import torch.nn.functional as F

from registry.heads.feed_forward import FeedForward
from registry.losses.virtual_neighbors import VirtualNeighbors
from registry.testing.materials import WidthOnly
from tests.registry.losses.neighborhood import contrast, hardest, moved_by, neighbors, project, unit
from tests.support.errors import refuses


class Headed(WidthOnly):
    """An encoder with a head like VaSCL's and nothing else."""

    def __init__(self, dim):
        super().__init__(dim)
        torch.manual_seed(3)
        self.head = FeedForward(hidden=8, width=3, activation="gelu")  # smooth: differences approximate its gradient
        self.head.fit(dim, self)
        self.double()

    def project(self, pooled):
        return self.head(pooled, ())


def draw(n, dim=5, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (5, 4)])
@pytest.mark.parametrize(("epsilon", "tau"), [(0.5, 0.2), (15.0, 0.5)])
def test_equals_the_literal_form(n, k, epsilon, tau):
    encoder, e = Headed(5), draw(n, seed=n)
    rows, near = e.tolist(), neighbors(e.tolist(), k)
    torch.manual_seed(9)
    value = VirtualNeighbors(encoder, k, epsilon, tau)(e)
    torch.manual_seed(9)
    first = [unit(row) for row in torch.randn(n, 5, dtype=torch.float64).tolist()]
    directions = hardest(encoder, rows, first, near, epsilon, tau)
    plain, moved = project(encoder, rows), project(encoder, moved_by(rows, directions, epsilon))
    expected = (contrast(plain, moved, near, tau) + contrast(moved, plain, near, tau)) / 2
    assert value.item() == pytest.approx(expected, abs=1e-6)


def test_value_by_hand():
    # No perturbation, no head: three unit vectors at 0°, 90° and 45°; the nearest of each at 45°, cosine 1/√2, τ = 0.5.
    e = torch.tensor([[1.0, 0.0], [0.0, 1.0], [math.sqrt(0.5), math.sqrt(0.5)]])
    value = VirtualNeighbors(WidthOnly(2), neighbors=1, epsilon=0.0, temperature=0.5)(e)
    assert value.item() == pytest.approx(math.log(1 + math.exp((math.sqrt(0.5) - 1) / 0.5)), abs=1e-6)


def test_neighbors_have_the_largest_inner_products_not_cosines():
    # The third is far off in angle and long: nearest to the first by product, not by cosine.
    e = torch.tensor([[1.0, 0.0], [0.9, 0.1], [5.0, 5.0]])
    value = VirtualNeighbors(WidthOnly(2), neighbors=1, epsilon=0.0, temperature=1.0)(e)
    near = [2, 2, 0]
    rows = e.tolist()
    assert neighbors(rows, 1) == [[j] for j in near]
    assert value.item() == pytest.approx(contrast(rows, rows, [[j] for j in near], 1.0), abs=1e-6)


def test_the_perturbation_makes_it_harder_than_chance():
    encoder, e = Headed(5), draw(12)
    loss = VirtualNeighbors(encoder, 4, 0.5, 0.2)
    near = torch.tensor(neighbors(e.tolist(), 4))
    directions = loss._hardest(e, near)
    assert torch.allclose(directions.norm(dim=1), torch.ones(12, dtype=torch.float64))

    def one_way(by):
        return loss._contrast(encoder.project(e), encoder.project(e + 0.5 * by), near).item()

    chance = [one_way(F.normalize(draw(12, seed=seed), dim=1)) for seed in range(1, 21)]
    assert one_way(directions) > max(chance)


@pytest.mark.parametrize("detached", [True, False])
def test_gradient_reaches_the_heads_and_where_asked_the_encoder(detached):
    encoder, e = Headed(5), draw(6).requires_grad_()
    VirtualNeighbors(encoder, 2, 1.0, 0.2, detached)(e).backward()
    assert encoder.head.first.weight.grad.any()
    assert (e.grad is None) == detached
    if not detached:
        assert e.grad.any()


def test_gradient_is_exact_where_the_perturbation_is_fixed():
    encoder = Headed(5)
    loss = VirtualNeighbors(encoder, 2, 0.0, 0.2, detached=False)
    assert torch.autograd.gradcheck(loss, draw(4).requires_grad_())


def test_the_start_in_a_cube():
    """VA5: uniform in [−1/2, 1/2]ᴰ, then length 1."""
    encoder, e = Headed(5), draw(4)
    near = neighbors(e.tolist(), 2)
    torch.manual_seed(4)
    found = VirtualNeighbors(encoder, 2, 1.0, 0.5, start="uniform")._hardest(e, torch.tensor(near))
    torch.manual_seed(4)
    first = [unit([x - 0.5 for x in row]) for row in torch.rand(4, 5, dtype=torch.float64).tolist()]
    expected = hardest(encoder, e.tolist(), first, near, 1.0, 0.5)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-6)


def test_too_small_a_batch_is_refused():
    with refuses("losses.batch_too_small", "neighbors = 16", 8, "at most 7"):
        VirtualNeighbors(WidthOnly(5))(draw(8))
