import math

import pytest
import torch
import torch.nn.functional as F

from registry.queues.noise import Noise, _direction
from tests.registry.queues.literal import bound


class TwoViews:
    """A step with vectors for two views and a generator that depends on its index alone."""

    def __init__(self, anchor, positive, index=0):
        self.views = {"anchor": anchor, "positive": positive}
        self.generator = torch.Generator().manual_seed(index)

    def sentences(self, view):
        return self.views[view].detach()


def step_of(n=4, dim=6, index=0):
    g = torch.Generator().manual_seed(100 + index)
    return TwoViews(torch.randn(n, dim, generator=g), torch.randn(n, dim, generator=g), index)


def drawn(count, dim, index=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(index))


def served(step, **parameters):
    queue = bound(Noise(**parameters), dim=step.sentences("anchor").shape[1])
    queue.observe(step)
    return queue.negatives()


def info_nce(noise, anchor, positive, tau):
    """Return the objective that the noise climbs, cell by cell."""
    total = torch.zeros((), dtype=noise.dtype)
    for i in range(len(anchor)):
        right = F.cosine_similarity(anchor[i], positive[i], dim=0) / tau
        below = sum(torch.exp(F.cosine_similarity(anchor[i], p, dim=0) / tau) for p in positive)
        below = below + sum(torch.exp(F.cosine_similarity(anchor[i], z, dim=0) / tau) for z in noise)
        total = total - (right - torch.log(below))
    return total / len(anchor)


def slow_noise(step, count, steps, rate, tau):
    anchor, positive = step.views["anchor"].double(), step.views["positive"].double()
    z = drawn(count, anchor.shape[1]).double()
    for _ in range(steps):
        z = z.detach().requires_grad_()
        (g,) = torch.autograd.grad(info_nce(z, anchor, positive, tau), z)
        z = z + rate * torch.stack([row / row.norm() for row in g])
    return F.normalize(z.detach(), dim=-1)


def test_value_by_hand():
    # One anchor along x, its positive too: the gradient turns the noise z toward x, at a right angle to z.
    step = TwoViews(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    x, y = drawn(1, 2)[0].tolist()
    norm = math.hypot(x, y)
    toward = (1 - x / norm * x / norm, -x / norm * y / norm)  # the part of (1, 0) at a right angle to z
    length = math.hypot(*toward)
    moved = (x + 0.5 * toward[0] / length, y + 0.5 * toward[1] / length)
    held = served(step, steps=1, rate=0.5)
    expected = [value / math.hypot(*moved) for value in moved]
    assert held.vectors[0].tolist() == pytest.approx(expected, abs=1e-5)
    assert held.log_weights.tolist() == [0.0]


@pytest.mark.parametrize(
    ("n", "times", "count", "steps", "rate"),
    [(4, 2.5, 10, 4, 0.7), (3, 0.5, 1, 1, 1e-3), (1, 0.3, 1, 4, 0.7), (1, 3.0, 3, 0, 0.7)],
)
def test_matches_the_slow_ascent(n, times, count, steps, rate):
    step = step_of(n)
    held = served(step, times=times, steps=steps, rate=rate, temperature=0.3)
    assert held.vectors.shape == (count, 6)
    expected = slow_noise(step, count, steps, rate, 0.3)
    torch.testing.assert_close(held.vectors.double(), expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 4])
def test_a_fixed_count_whatever_the_batch_and_nothing_moved(n):
    held = served(step_of(n), count=7, times=100.0, steps=0)
    rows = [[x / math.hypot(*row) for x in row] for row in drawn(7, 6).tolist()]
    assert held.vectors.flatten().tolist() == pytest.approx([x for row in rows for x in row], abs=1e-6)


def test_it_is_empty_before_the_first_step_and_serves_single_precision():
    queue = bound(Noise(), dim=6)
    assert queue.negatives().vectors.shape == (0, 6)
    assert queue.negatives().log_weights.shape == (0,)
    queue.observe(step_of())
    assert queue.state_dict() == {}
    assert queue.length is None
    step = step_of()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        held = served(TwoViews(step.views["anchor"].bfloat16(), step.views["positive"].bfloat16()))
    assert held.vectors.dtype == torch.float32


def test_a_vector_without_gradient_stays():
    gradient = torch.tensor([[3e-30, 4e-30], [0.0, 0.0], [3e30, -4e30]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, -0.8]])
    torch.testing.assert_close(_direction(gradient), expected)
    # At a low temperature the softmax gives noise no share at all in single precision: DCLR's g/‖g‖ is NaN there.
    anchor = torch.eye(6)[:3]
    held = served(TwoViews(anchor, anchor), temperature=1e-4, rate=0.5)
    torch.testing.assert_close(held.vectors, F.normalize(drawn(3, 6), dim=-1))
