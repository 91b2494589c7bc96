"""Information between attention weights: the value by plain loops, what is left out, and where gradient goes."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from registry.losses.attention_information import AttentionInformation
from registry.tokens import Encoded, Tokens
from tests.support.errors import refuses

GROUPS, HEADS = [[1, 4], [3, 5]], 2
BLOCKS = (1, 3, 4, 5)


def attention(mask, generator, zeros=0.0):
    """(B, H, L, L) weights of random scores, some of which dropout took."""
    rows, length = mask.shape
    scores = torch.randn(rows, HEADS, length, length, generator=generator, dtype=torch.float64)
    weights = scores.masked_fill(mask[:, None, None] == 0, -math.inf).softmax(-1)
    kept = torch.rand(weights.shape, generator=generator, dtype=torch.float64) >= zeros
    return weights * kept / (1 - zeros)


def view(lengths, seed=0, zeros=0.0):
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    states = torch.zeros(len(lengths), longest, 3, dtype=torch.float64)
    weights = {block: attention(mask, generator, zeros).requires_grad_() for block in BLOCKS}
    return Encoded(states[:, 0], states, states, Tokens(mask, mask, mask, mask), attentions=weights)


def literal(first, second, groups, samples, read=None):
    """miCSE's code by loops over heads: heads without `samples` places are dropped, and one share scales all.

    Args:
        first: Block → (B, H, L, L) weights of the first view.
        second: The same of the second view.
        groups: Blocks whose places have one correlation.
        samples: Number of places that a head needs.
        read: Block → (B, H, L, L) booleans, the sampled places. All shared places are read without it.
    """
    rows, heads, length, _ = first[groups[0][0]].shape
    values, shared, places = [], 0, 0
    for group, row, head in product(groups, range(rows), range(heads)):
        pairs, count = [], 0
        for block, query, key in product(group, range(length), range(length)):
            place = row, head, query, key
            here, there = first[block][place], second[block][place]
            if min(here, there) > 0:
                count += 1
                pairs += [(torch.log(here), torch.log(there))] if read is None or read[block][place] else []
        if count < samples:
            continue
        x, y = (torch.stack(side) for side in zip(*pairs, strict=True))
        x, y = x - x.mean(), y - y.mean()
        rho = (x * y).sum() / (x.square().sum().sqrt() * y.square().sum().sqrt())
        values.append(-0.5 * torch.log(1 - rho**2))
        shared, places = shared + count, places + len(group) * length * length
    return -torch.stack(values).mean() * ((shared / places) ** 2 + 1e-6)


def gradients(value, anchor, positive):
    return torch.autograd.grad(value, [w for v in (anchor, positive) for w in v.attentions.values()])


def loss(**options):
    return AttentionInformation(GROUPS, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("lengths", "zeros"), [([4, 4], 0.0), ([7, 3, 5], 0.2), ([6, 4, 8, 8], 0.2)])
def test_all_places_equal_plain_loops(lengths, zeros):
    """No head has 500 places, so each uses all that it has."""
    anchor, positive = view(lengths, 1, zeros), view(lengths, 2, zeros)
    made = loss(samples=500)(anchor, positive)
    expected = literal(anchor.attentions, positive.attentions, GROUPS, 0)
    assert made.item() == pytest.approx(expected.item(), rel=1e-6)
    for ours, theirs in zip(gradients(made, anchor, positive), gradients(expected, anchor, positive), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_sampled_places_equal_the_authors_code():
    """Gradient shows which places were drawn. The short sentence has fewer than 40 places and is dropped."""
    anchor, positive = view([7, 2, 5], 1, 0.1), view([7, 2, 5], 2, 0.1)
    made = loss(samples=40)(anchor, positive)
    found = gradients(made, anchor, positive)
    read = {block: gradient != 0 for block, gradient in zip(anchor.attentions, found, strict=False)}
    for group in GROUPS:
        drawn = sum(read[block].flatten(2).sum(2) for block in group)
        assert drawn.tolist() == [[40] * HEADS, [0] * HEADS, [40] * HEADS]
    expected = literal(anchor.attentions, positive.attentions, GROUPS, 40, read)
    assert made.item() == pytest.approx(expected.item(), rel=1e-6)
    for ours, theirs in zip(found, gradients(expected, anchor, positive), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-12)


def test_value_by_hand():
    """Logarithms 0, 1, 2, 3 and 0, 1, 3, 2 have a correlation of 0.8, at all four places."""
    anchor, positive = view([2]), view([2])
    here = torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=torch.float64).exp()
    there = torch.tensor([[0.0, 1.0], [3.0, 2.0]], dtype=torch.float64).exp()
    one, other = (
        replace(given, attentions={1: weights.expand(1, HEADS, 2, 2)})
        for given, weights in ((anchor, here), (positive, there))
    )
    made = AttentionInformation([[1]])(one, other).item()
    assert made == pytest.approx((1 + 1e-6) * 0.5 * math.log(0.36), abs=1e-12)


def test_equal_views_and_nothing_shared_have_finite_information_and_no_gradient():
    anchor = view([4, 6], 1)
    made = loss(samples=500)(anchor, replace(anchor, attentions={k: w.detach() for k, w in anchor.attentions.items()}))
    share = (4 / 6 + 1) / 2  # padding counts as queries, not as keys
    assert made.item() == pytest.approx((share**2 + 1e-6) * 0.5 * math.log(1e-6), abs=1e-9)
    made.backward()
    assert all(not leaf.grad.any() for leaf in anchor.attentions.values())
    anchor = view([3])
    empty = replace(anchor, attentions={block: torch.zeros_like(w) for block, w in anchor.attentions.items()})
    made = loss()(anchor, empty)
    assert made.item() == 0
    made.backward()
    assert all(not leaf.grad.any() for leaf in anchor.attentions.values())


def test_views_and_groups_of_different_sizes_are_refused():
    with refuses("losses.view_length_mismatch", 4, 5):
        loss()(view([4]), view([5]))
    with refuses("losses.uneven_groups", "[[1, 4], [3]]"):
        AttentionInformation([[1, 4], [3]])
