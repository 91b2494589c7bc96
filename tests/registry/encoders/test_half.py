"""Dropout and attention in bf16 on a CPU have the distribution and the values of torch's."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from registry.encoders import half, packing
from registry.encoders.packing import Rows, packs


@pytest.mark.parametrize(("rate", "dtype"), [(0.1, torch.bfloat16), (0.37, torch.float32), (0.9, torch.bfloat16)])
def test_dropout_drops_each_value_with_the_rate_and_scales_the_others(rate, dtype):
    torch.manual_seed(0)
    values = torch.ones(1000, 1003, dtype=dtype)
    kept = half.dropout(values, rate) != 0
    deviation = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=4 * deviation + 1 / half.LEVELS)
    # Neighbors share a random number. They must still be independent.
    together = (kept[:, 1:] & kept[:, :-1]).double().mean().item()
    assert together == pytest.approx((1 - rate) ** 2, abs=8 * deviation + 2 / half.LEVELS)
    scale = half.dropout(torch.full((1000,), 2.0, dtype=dtype), rate).max().item()
    assert scale == pytest.approx(2 / (1 - rate), rel=2**-8 if dtype == torch.bfloat16 else 2e-4)


def test_the_gradient_has_the_mask_of_the_values():
    values = torch.randn(64, 48, requires_grad=True)
    made = half.dropout(values, 0.3)
    (made * torch.arange(48)).sum().backward()
    expected = torch.where(made == 0, 0.0, made / values) * torch.arange(48)
    torch.testing.assert_close(values.grad, expected)


def test_dropout_follows_the_seed_and_layers_use_it_only_in_training_in_half_precision():
    values = torch.randn(10, 10).bfloat16()
    torch.manual_seed(1)
    first, other = half.dropout(values, 0.5), half.dropout(values, 0.5)
    torch.manual_seed(1)
    assert torch.equal(half.dropout(values, 0.5), first)
    assert not torch.equal(first, other)
    layer, values = half.Dropout(0.5), torch.randn(100, 100)
    torch.manual_seed(2)
    expected = torch.nn.functional.dropout(values, 0.5)
    torch.manual_seed(2)
    assert torch.equal(layer(values), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(2)
        assert not torch.equal(layer(values), expected)
        assert torch.equal(layer.eval()(values), values)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_that_of_torch_without_dropped_weights(masked, monkeypatch):
    monkeypatch.setattr(half, "dropout", lambda weights, _: weights)
    query, key, value = torch.randn(3, 4, 2, 7, 8).bfloat16()
    mask = (torch.arange(7) < torch.tensor([3, 7, 5, 1])[:, None])[:, None, None] if masked else None
    expected = scaled_dot_product_attention(query.double(), key.double(), value.double(), attn_mask=mask, scale=0.3)
    found = half.attention(query, key, value, mask, 0.1, 0.3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)


def test_a_pack_in_half_precision_computes_the_attention_of_single_precision(monkeypatch):
    monkeypatch.setattr(half, "dropout", lambda weights, _: weights)
    lengths = torch.tensor([5, 2, 7, 7, 1, 3, 2])
    (pack,) = packs(Rows((torch.arange(7) < lengths[:, None]).long()), 1000)
    states = torch.randn(3, 1, 2, int(lengths.sum()), 4).bfloat16()
    expected = pack.attend([part[0].transpose(0, 1).float() for part in states], 0.0, None)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = packing.packed_attention(None, *states, None, pack=pack, dropout=0.1, scaling=None)
    torch.testing.assert_close(found[0], expected, atol=1e-6, rtol=1e-5)
