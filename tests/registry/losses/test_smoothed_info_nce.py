import math

import pytest
import torch

from registry.losses.info_nce import InfoNCE
from registry.losses.smoothed_info_nce import SmoothedInfoNCE
from registry.types import Negatives
from tests.registry.losses import literal as slow


def smoothed(positive, queue, neighbors, t):
    """Each positive averaged with its nearest, of lists of rows, one product at a time; `queue` is (entry, weight)."""
    own = [slow.unit(row) for row in positive]
    made = []
    for i, row in enumerate(own):
        others = [(entry, weight) for entry, weight in queue if weight > 0]
        others += [(other, 1.0) for j, other in enumerate(own) if j != i]
        near = sorted(others, key=lambda each: -sum(x * y for x, y in zip(row, each[0], strict=True)))[:neighbors]
        values = [(row, 1.0), *near]
        shares = [w * math.exp(sum(x * y for x, y in zip(row, value, strict=True)) / t) for value, w in values]
        parts = [(s / sum(shares), value) for s, (value, _) in zip(shares, values, strict=True)]
        made.append([sum(s * value[d] for s, value in parts) for d in range(len(row))])
    return made


def literal(anchor, positive, queue, tau, neighbors, t):
    total, stars = 0.0, smoothed(positive.tolist(), queue, neighbors, t)
    for i, row in enumerate(anchor.tolist()):
        below = sum(math.exp(slow.cosine(row, star) / tau) for star in stars)
        total -= math.log(math.exp(slow.cosine(row, stars[i]) / tau) / below)
    return total / len(stars)


def entries(queue):
    return list(zip(queue.vectors.tolist(), queue.log_weights.exp().tolist(), strict=True))


def held(k, dim=6, seed=9):
    """Return a queue of k unit vectors, all of weight 1."""
    vectors = torch.randn(k, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Negatives(torch.nn.functional.normalize(vectors, dim=-1), torch.zeros(k, dtype=torch.float64))


def test_value_by_hand_among_the_newest_entries():
    # One sentence, one entry at a right angle: attention e^{1/2} : e⁰. Alone in its batch it is certain.
    one, queue = torch.tensor([[2.0, 0.0]]), Negatives(torch.tensor([[0.0, 1.0]]), torch.zeros(1))
    assert SmoothedInfoNCE(buffer=2)(one, one, queue).item() == 0.0
    # Two, each other's only neighbor: h* = (a, 1 − a) and (1 − a, a) with a = e^{1/2} / (e^{1/2} + 1).
    two = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    a = math.exp(0.5) / (math.exp(0.5) + 1)
    apart = (2 * a - 1) / math.hypot(a, 1 - a)
    value = SmoothedInfoNCE(temperature=0.5, buffer=2)(two, two, Negatives.none(two))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-apart / 0.5)), abs=1e-6)
    anchor, positive, *_ = slow.draw(4, 0)
    queue = held(12)
    newest = Negatives(queue.vectors[-3:], queue.log_weights[-3:])
    loss = SmoothedInfoNCE(neighbors=2, buffer=7)
    assert loss(anchor, positive, queue).item() == loss(anchor, positive, newest).item()


@pytest.mark.parametrize(("k", "neighbors", "t", "tau"), [(12, 3, 2.0, 0.05), (0, 1, 0.1, 1.0), (5, 40, 1.0, 0.2)])
def test_row_by_row(k, neighbors, t, tau):
    anchor, positive, *_ = slow.draw(4, 0, seed=k)
    queue = held(k)
    value = SmoothedInfoNCE(tau, neighbors, t, buffer=4 + k)(anchor, positive, queue)
    assert value.item() == pytest.approx(literal(anchor, positive, entries(queue), tau, neighbors, t), abs=1e-9)


def test_the_authors_arithmetic():
    """Their own lines: the buffer with the batch at its end, sorted, the first left out; attention; InfoNCE."""
    anchor, positive, *_ = slow.draw(4, 0, seed=3)
    queue = held(12)
    z2 = torch.nn.functional.normalize(positive, dim=-1)
    buffer = torch.cat([queue.vectors[4:], z2])
    order = torch.argsort(z2 @ buffer.T, dim=-1, descending=True)[:, 1:6]
    near = torch.cat([z2.unsqueeze(1), buffer[order.flatten()].view(4, 5, -1)], dim=1)
    star = ((near[:, :1] @ near.transpose(1, 2) / 2).softmax(-1) @ near).squeeze(1)
    expected = InfoNCE(0.05)(anchor, star, Negatives.none(anchor))
    value = SmoothedInfoNCE(neighbors=5, buffer=12)(anchor, positive, queue)
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)


def test_weights_multiply_and_the_loss_begins_when_the_buffer_is_full():
    anchor, positive, _, _, queue = slow.draw(3, 6, seed=4)
    queue = Negatives(torch.nn.functional.normalize(queue.vectors, dim=-1), queue.log_weights)
    for neighbors in (2, 40):
        value = SmoothedInfoNCE(neighbors=neighbors, buffer=9)(anchor, positive, queue)
        expected = literal(anchor, positive, entries(queue), 0.05, neighbors, 2.0)
        assert value.item() == pytest.approx(expected, abs=1e-9)
    anchor, positive = (t.requires_grad_() for t in slow.draw(4, 0)[:2])
    loss = SmoothedInfoNCE(buffer=8)
    early = loss(anchor, positive, held(3))
    early.backward()
    assert early.item() == 0.0
    assert not anchor.grad.any()
    assert loss(anchor, positive, held(4)).item() > 0
    anchor, positive = slow.draw(4, 0)[:2]
    loss = SmoothedInfoNCE(buffer=8)
    for k in (0, 1, 2, 3):
        loss(anchor, positive, held(k))
    assert loss.notices() == []  # it fills
    for _ in range(5):
        loss(anchor, positive, held(3))
    (notice,) = loss.notices()
    assert "3 entries" in notice
    assert "buffer = 8" in notice
    assert loss.notices() == []


def test_a_neighbor_of_the_batch_is_a_constant():
    two = torch.tensor([[1.0, 0.0], [0.6, 2.0]], dtype=torch.float64, requires_grad=True)
    value = SmoothedInfoNCE(temperature=0.2, buffer=2)(two.detach(), two, Negatives.none(two))
    (gradient,) = torch.autograd.grad(value, two)
    stars = []
    for i in range(2):
        own, other = two[i] / two[i].norm(), (two[1 - i] / two[1 - i].norm()).detach()
        share = torch.stack([own @ own, own @ other]).div(2).softmax(0)
        stars.append(share[0] * own + share[1] * other)
    expected = InfoNCE(0.2)(two.detach(), torch.stack(stars), Negatives.none(two))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, two)[0])
    # Every sentence is nearer to the queue's than to those of the batch, so that no neighbor moves with the positives.
    anchor, positive = (t.requires_grad_() for t in slow.draw(3, 0)[:2])
    near = torch.cat([positive.detach() + 0.01, positive.detach() - 0.01])
    queue = Negatives(torch.nn.functional.normalize(near, dim=-1), torch.zeros(6, dtype=torch.float64))
    loss = SmoothedInfoNCE(temperature=0.2, neighbors=2, buffer=9)
    assert torch.autograd.gradcheck(lambda a, p: loss(a, p, queue), (anchor, positive))
