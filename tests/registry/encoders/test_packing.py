"""Packs hold every real token once, in order, and attention in them is attention in a padded batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from registry.encoders import packing
from registry.encoders.packing import Rows, packs

masks = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def mask_of(lengths):
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.slow
@given(masks, st.integers(1, 60), st.none() | st.integers(1, 5))
def test_every_real_token_is_in_one_pack_in_order(lengths, most_tokens, most_rows):
    mask = mask_of(lengths)
    found = packs(Rows(mask), most_tokens, most_rows)
    rows = [row for pack in found for row in pack.sentences.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths)
    assert all(len(pack.sentences) <= (most_rows or len(lengths)) for pack in found)
    width = mask.shape[1]
    for pack in found:
        expected = [row * width + place for row in pack.sentences.tolist() for place in range(lengths[row])]
        assert pack.places.tolist() == expected
        assert [pack.places[first].item() for first in pack.firsts] == [row * width for row in pack.sentences.tolist()]
        of_groups = pack.sentences.split([group.sentences for group in pack.groups])
        sizes = [sum(lengths[row] for row in rows.tolist()) for rows in of_groups]
        assert [group.tokens for group in pack.groups] == sizes


@pytest.mark.slow
@given(masks)
def test_a_group_holds_little_padding(lengths):
    for pack in packs(Rows(mask_of(lengths)), 1000):
        of_groups = pack.sentences.split([group.sentences for group in pack.groups])
        for group, rows in zip(pack.groups, map(Tensor.tolist, of_groups), strict=True):
            assert len(rows) * group.length - sum(lengths[row] for row in rows) <= packing.SPARE


def test_packs_leave_hidden_tokens_out_and_are_of_about_equal_work():
    mask = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0]])
    (pack,) = packs(Rows(mask), 100)
    assert pack.sentences.tolist() == [1, 0]
    assert pack.places.tolist() == [4, 5, 0, 2, 3]
    assert pack.firsts.tolist() == [0, 2]
    lengths = torch.randint(3, 33, (256,), generator=torch.Generator().manual_seed(1)).tolist()
    sizes = [len(pack.places) for pack in packs(Rows(mask_of(lengths)), 1000)]
    assert len(sizes) == -(-sum(lengths) // 1000)
    assert max(sizes) - min(sizes) <= 33


@pytest.mark.parametrize("spare", [0, 3, 1000])
def test_attention_in_a_pack_is_that_of_each_sentence_by_itself(spare, monkeypatch):
    monkeypatch.setattr(packing, "SPARE", spare)
    lengths = [5, 2, 7, 7, 1, 3, 2]
    (pack,) = packs(Rows(mask_of(lengths)), 1000)
    total, heads, size = sum(lengths), 2, 4
    query, key, value = torch.randn(3, total, heads, size, dtype=torch.float64)
    found = pack.attend([query, key, value], 0.0, None)
    first = pack.attend_first(query[pack.firsts], key, value, 0.0, None)
    start = 0
    for number, row in enumerate(pack.sentences.tolist()):
        own = slice(start, start + lengths[row])
        alone = scaled_dot_product_attention(*(part[own].transpose(0, 1) for part in (query, key, value)))
        torch.testing.assert_close(found[own], alone.transpose(0, 1))
        torch.testing.assert_close(first[number], alone[:, 0])
        start = own.stop
