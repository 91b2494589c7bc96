"""Looked-up word embeddings have the values and gradients of torch's embedding layer."""

import pytest
import torch
from torch import nn

from registry.encoders.lookup import look_up, rows_added

IDS = [torch.tensor([[3, 1, 0], [1, 5, 3]]), torch.tensor([[1, 7, 0, 0]])]


@pytest.mark.parametrize("padding", [None, 0])
def test_gradients_of_several_steps_are_those_of_torch(padding):
    torch.manual_seed(0)
    usual = nn.Embedding(9, 4, padding_idx=padding)
    kept = nn.Embedding(9, 4, padding_idx=padding)
    kept.load_state_dict(usual.state_dict())
    weights = [torch.randn(*ids.shape, 4) for ids in IDS]
    places = []
    for step in range(3):
        chosen = IDS if step != 1 else IDS[1:]  # rows of an earlier step must not remain
        for layer, found in ((usual, usual), (kept, lambda ids: look_up(kept, ids))):
            layer.zero_grad()
            value = sum((found(ids) * own).sum() for ids, own in zip(chosen, weights[-len(chosen) :], strict=True))
            with rows_added():
                value.backward()
        assert torch.equal(kept.weight.grad, usual.weight.grad)
        places.append(kept.weight.grad.data_ptr())
    assert len(set(places)) == 1  # the same memory


def test_a_shared_table_adds_its_other_gradients_and_a_frozen_one_none():
    layer, like = nn.Embedding(9, 4), nn.Embedding(9, 4)
    like.load_state_dict(layer.state_dict())
    for found, table in ((look_up(layer, IDS[0]), layer), (like(IDS[0]), like)):
        with rows_added():
            (found @ table.weight.T).pow(2).sum().backward()
    torch.testing.assert_close(layer.weight.grad, like.weight.grad)
    layer = nn.Embedding(9, 4)
    layer.weight.requires_grad_(False)
    found = look_up(layer, IDS[0])
    assert torch.equal(found, layer(IDS[0]))
    assert not found.requires_grad


@pytest.mark.parametrize("padding", [None, 3])
def test_autograd_receives_the_gradient_outside_of_the_block(padding):
    layer = nn.Embedding(9, 4, padding_idx=padding)
    values = [(found.pow(2) * torch.arange(4)).sum() for found in (look_up(layer, IDS[0]), layer(IDS[0]))]
    found, expected = (torch.autograd.grad(value, layer.weight)[0] for value in values)
    assert torch.equal(found, expected)
    assert layer.weight.grad is None
