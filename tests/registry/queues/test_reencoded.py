import copy
from types import SimpleNamespace

import pytest
import torch

from registry.distributed import all_devices, rank, world_size
from registry.queues.reencoded import Reencoded
from registry.testing.materials import WidthOnly
from registry.tokens import Tokens
from tests.registry.encoders.vectors import tokens_of
from tests.support.fakes import FakeEncoder
from tests.support.processes import on_ranks
from tests.support.tiny import sentences


class StepOn:
    """A step in which view "key" saw these tokens through this encoder."""

    def __init__(self, encoder, tokens, seed=0):
        with torch.no_grad():
            self.views = {"key": encoder.encode(tokens, encoder.embed(tokens))}
        self.generator = torch.Generator().manual_seed(seed)

    def sentences(self, view):
        return self.views[view].sentence


def still(width=6):
    torch.manual_seed(0)
    return FakeEncoder(width, dropout=0.0)


def bound(encoder, **options):
    queue = Reencoded("key", **options)
    queue.bind(encoder)
    return queue


def test_value_by_hand():
    """WidthOnly: token i has the vector (sin i, sin 2i); a sentence is the sum of its real tokens."""
    encoder = WidthOnly(2)
    queue = bound(encoder, length=3)
    mask = torch.tensor([[1, 1], [1, 0]])
    tokens = Tokens(torch.tensor([[1, 2], [3, 0]]), mask, torch.zeros_like(mask), torch.arange(2).expand(2, 2))
    queue.after_step(StepOn(encoder, tokens))
    queue.observe(StepOn(encoder, tokens))
    sums = torch.tensor([[0.841471 + 0.909297, 0.909297 - 0.756802], [0.141120, -0.279415]])
    expected = sums / sums.norm(dim=1, keepdim=True)
    assert torch.allclose(queue.negatives().vectors, expected, atol=1e-5)
    assert queue.negatives().log_weights.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("length", "chunk", "sizes"), [(1, 1, [4, 1]), (4, 100, [9]), (7, 3, [4, 1, 4, 2]), (50, 3, [4] * 4)]
)
def test_matches_a_list_of_sentences(length, sizes, chunk):
    encoder = still()
    queue, held = bound(encoder, length=length, chunk=chunk), []
    for index, size in enumerate(sizes):
        lines = sentences(size, index)
        queue.observe(step := StepOn(encoder, tokens_of(encoder, lines)))
        assert len(queue.negatives().vectors) == len(held)
        for line, vector in zip(held, queue.negatives().vectors, strict=True):
            own = encoder.encode_for_eval(tokens_of(encoder, [line]))[0]
            assert torch.allclose(vector, own / own.norm(), atol=1e-5)
        queue.after_step(step)
        held = [*held, *lines][-length:]
        with torch.no_grad():
            encoder.linear.weight += 0.3 * torch.randn(encoder.linear.weight.shape)


def test_initial_entries_leave_first_and_without_any_nothing_is_drawn():
    encoder = still()
    queue = bound(encoder, length=5, initial=3)
    start = queue.negatives().vectors
    assert torch.allclose(start.norm(dim=1), torch.ones(3))
    queue.observe(step := StepOn(encoder, tokens_of(encoder, sentences(3, 0))))
    assert torch.equal(queue.negatives().vectors, start)
    queue.after_step(step)
    queue.observe(step)
    assert torch.equal(queue.negatives().vectors[:2], start[1:])
    assert len(queue.negatives().vectors) == 5
    queue = bound(encoder, length=5)
    step = SimpleNamespace(generator=torch.Generator().manual_seed(3))
    state = step.generator.get_state()
    queue.observe(step)
    assert torch.equal(step.generator.get_state(), state)
    assert queue.negatives().vectors.shape == (0, 6)


def test_dropout_depends_on_the_steps_stream_alone():
    """Devices differ in their own random state; they must serve the same, and lose no number of their own stream."""
    torch.manual_seed(0)
    encoder = FakeEncoder(6, dropout=0.5)
    queue = bound(encoder, length=5)
    tokens = tokens_of(encoder, sentences(4, 0))
    queue.after_step(StepOn(encoder, tokens))
    found = []
    for own, seed in ((1, 7), (2, 7), (1, 8)):
        step = StepOn(encoder, tokens, seed)
        torch.manual_seed(own)
        queue.observe(step)
        found.append(queue.negatives().vectors)
        after = torch.rand(1)
        torch.manual_seed(own)
        assert torch.rand(1) == after
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_state_survives_in_a_queue_that_is_not_bound():
    encoder = still()
    queue = bound(encoder, length=6, initial=2)
    steps = [StepOn(encoder, tokens_of(encoder, sentences(3, seed))) for seed in (0, 1, 2)]
    queue.after_step(steps[0])
    fresh = Reencoded("key", length=6, initial=2)
    fresh.load_state_dict(copy.deepcopy(queue.state_dict()))
    assert torch.equal(fresh.tokens, queue.tokens)
    fresh._encoder = (encoder,)
    for step in steps[1:]:
        for each in (queue, fresh):
            each.observe(step)
            each.after_step(step)
    assert torch.equal(fresh.negatives().vectors, queue.negatives().vectors)
    assert torch.equal(fresh.tokens, queue.tokens)


class SharedStep(StepOn):
    def sentences(self, view):
        return all_devices(super().sentences(view))


def served(place, world):
    """What a queue serves after three steps of four sentences, each device's own random state another."""
    torch.manual_seed(0)
    encoder = FakeEncoder(6, dropout=0.3)
    queue, share = bound(encoder, length=6, initial=2), 4 // world
    torch.manual_seed(place)
    for index in range(3):
        own = sentences(4, index)[place * share : (place + 1) * share]
        step = SharedStep(encoder.eval(), tokens_of(encoder, own), seed=index)
        encoder.train()
        queue.observe(step)
        queue.after_step(step)
    queue.observe(step)
    return queue.negatives().vectors


def served_here():
    return served(rank(), world_size())


@pytest.mark.process
def test_two_devices_serve_what_one_does():
    alone = served(0, 1)
    assert len(alone) == 6
    assert all(torch.allclose(shared, alone, atol=1e-6) for shared in on_ranks(served_here))
