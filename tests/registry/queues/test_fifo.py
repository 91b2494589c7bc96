import copy
from types import SimpleNamespace

import pytest
import torch

from registry.queues.fifo import Fifo
from tests.registry.queues.literal import LiteralQueue, StepOf, batches, bound
from tests.support.errors import refuses


def test_value_by_hand():
    queue = bound(Fifo("anchor", length=3), dim=2)
    queue.after_step(StepOf(torch.tensor([[3.0, 4.0], [0.0, 2.0]])))
    queue.after_step(StepOf(torch.tensor([[-5.0, 0.0], [8.0, 6.0]])))
    held = queue.negatives()
    assert torch.allclose(held.vectors, torch.tensor([[0.0, 1.0], [-1.0, 0.0], [0.8, 0.6]]))
    assert held.log_weights.tolist() == [0.0, 0.0, 0.0]
    queue = bound(Fifo("anchor", length=4, part="oldest"), dim=2)
    queue.after_step(StepOf(torch.tensor([[1.0, 0.0], [0.0, 1.0]])))
    queue.after_step(StepOf(torch.tensor([[-1.0, 0.0], [0.0, -1.0]])))
    queue.after_step(StepOf(torch.tensor([[3.0, 4.0]])))
    assert queue.negatives().vectors.tolist() == [[0.0, 1.0], [-1.0, 0.0]]


@pytest.mark.parametrize(("length", "sizes"), [(1, [7]), (6, [4, 4, 1, 4, 2]), (6, [12, 3]), (100, [12, 3])])
def test_matches_the_list(length, sizes):
    queue, expected = bound(Fifo("anchor", length=length)), LiteralQueue(length)
    for batch in batches(sizes):
        queue.after_step(StepOf(batch))
        expected.push(batch)
        held = queue.negatives()
        assert len(held.vectors) == len(expected.rows) <= length
        assert torch.allclose(held.vectors, expected.vectors(), atol=1e-6)
        assert held.log_weights.tolist() == [0.0] * len(expected.rows)


def test_initial_entries_are_unit_reproducible_leave_first_and_the_global_stream_alone():
    first, second = (bound(Fifo("anchor", length=6, initial=4)) for _ in range(2))
    start = first.negatives().vectors
    assert torch.equal(start, second.negatives().vectors)
    assert torch.allclose(start.norm(dim=1), torch.ones(4))
    first.after_step(StepOf(batches([3])[0]))
    assert len(first.negatives().vectors) == 6
    assert torch.equal(first.negatives().vectors[:3], start[1:])
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    bound(Fifo("anchor", length=6, initial=4))
    assert torch.rand(1) == expected


def test_sizes_that_do_not_fit_are_refused():
    with refuses("queues.initial_exceeds_length", "initial = 9", "length = 8"):
        Fifo("anchor", length=8, initial=9)
    with refuses("queues.served_without_part", "served = 3"):
        Fifo("anchor", length=8, served=3)
    with refuses("queues.served_exceeds_length", "served = 9", "length = 8"):
        Fifo("anchor", length=8, part="oldest", served=9)


def test_stored_detached_in_single_precision_in_buffers_that_keep_their_size():
    queue = bound(Fifo("anchor", length=4))
    rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    queue.after_step(StepOf(rows.bfloat16()))
    held = queue.negatives()
    assert not held.vectors.requires_grad
    assert held.vectors.dtype == torch.float32
    assert torch.allclose(held.vectors.norm(dim=1), torch.ones(3))
    queue = bound(Fifo("anchor", length=5))
    shapes = {name: tuple(buffer.shape) for name, buffer in queue.named_buffers()}
    queue.after_step(StepOf(batches([3])[0]))
    assert {name: tuple(buffer.shape) for name, buffer in queue.named_buffers()} == shapes
    assert queue.to("meta").negatives().vectors.device.type == "meta"


def test_state_survives_in_a_queue_that_is_not_bound_and_an_emptier_one_empties():
    queue = bound(Fifo("anchor", length=5))
    for batch in batches([4, 2]):
        queue.after_step(StepOf(batch))
    fresh = Fifo("anchor", length=5)
    fresh.load_state_dict(copy.deepcopy(queue.state_dict()))
    for each in (queue, fresh):
        each.after_step(StepOf(batches([2], seed=3)[0]))
    assert torch.equal(fresh.negatives().vectors, queue.negatives().vectors)
    assert torch.equal(fresh.ages, queue.ages)
    full, empty = bound(Fifo("anchor", length=5)), bound(Fifo("anchor", length=5))
    full.after_step(StepOf(batches([5])[0]))
    full.load_state_dict(empty.state_dict())
    assert len(full.negatives().vectors) == 0


def ages_of(part, held, served):
    """Positions by age, oldest first, as a person would pick them."""
    everything, count = list(range(held)), min(served, held)
    if part == "ends":
        newest = count // 2
        return everything[: count - newest] + everything[held - newest :]
    start = {"oldest": 0, "newest": held - count, "middle": (held - count) // 2}[part]
    return everything[start : start + count]


@pytest.mark.parametrize("part", ["oldest", "newest", "middle", "ends"])
@pytest.mark.parametrize(("served", "sizes"), [(None, [4, 4, 1, 4, 2]), (1, [3]), (7, [4, 4, 1, 4, 2])])
def test_parts_by_age(part, served, sizes):
    queue, whole = bound(Fifo("anchor", length=8, part=part, served=served)), LiteralQueue(8)
    assert queue.negatives().vectors.shape == (0, 4)
    for batch in batches(sizes):
        queue.after_step(StepOf(batch))
        whole.push(batch)
        chosen = ages_of(part, len(whole.rows), served or 4)
        held = queue.negatives()
        assert torch.allclose(held.vectors, whole.vectors()[chosen], atol=1e-6)
        assert len(held.log_weights) == len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("length", [10**12, 10**8])
def test_memory_that_is_not_there_is_not_asked_for(length, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=2 * 2**30))
    with refuses("queues.not_enough_memory", f"length = {length:,}", "2 GB"):
        Fifo("anchor", length=length).bind(SimpleNamespace(dim=768))
