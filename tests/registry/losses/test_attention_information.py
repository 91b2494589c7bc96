"""Information between attention weights: the value by plain loops, what is left out, and where gradient goes."""

import math
from dataclasses import replace

import pytest
import torch

from registry.losses.attention_information import AttentionInformation
from registry.tokens import Encoded, Tokens
from tests.support.errors import refuses

BLOCKS, HEADS = (1, 3), 2


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
    weights = {block: attention(mask, generator, zeros) for block in BLOCKS}
    return Encoded(states[:, 0], states, states, Tokens(mask, mask, mask, mask), attentions=weights)


def information(first, second, length, padding=False):
    """One head of one sentence by plain loops: its scaled information, and how many places it has."""
    queries = range(len(first) if padding else length)
    keys = range(len(first) if padding else length)
    pairs = [
        (math.log(first[q][k]), math.log(second[q][k]))
        for q in queries
        for k in keys
        if first[q][k] > 0 and second[q][k] > 0
    ]
    count = len(pairs)
    x, y = (sum(pair[side] for pair in pairs) / count for side in (0, 1))
    covariance = sum((a - x) * (b - y) for a, b in pairs)
    rho = covariance / math.sqrt(sum((a - x) ** 2 for a, _ in pairs) * sum((b - y) ** 2 for _, b in pairs))
    share = count / (len(queries) * len(keys))
    return (share**2 + 1e-6) * -0.5 * math.log(1 - rho**2), count


def literal(anchor, positive, padding=False, at_least=0):
    found = [
        information(*(v.attentions[block][i, head].tolist() for v in (anchor, positive)), length, padding)
        for block in BLOCKS
        for head in range(HEADS)
        for i, length in enumerate(anchor.tokens.mask.sum(1).tolist())
    ]
    kept = [value for value, count in found if count >= at_least]
    return -sum(kept) / max(1, len(kept))


def loss(**options):
    return AttentionInformation(list(BLOCKS), **options)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("padding", [None, True])
@pytest.mark.parametrize("lengths", [[4, 4], [7, 3, 5], [6, 4, 8, 8]])
def test_equals_plain_loops(lengths, padding, zeros):
    anchor, positive = view(lengths, 1, zeros), view(lengths, 2, zeros)
    made = loss(padding=padding)(anchor, positive).item()
    assert made == pytest.approx(literal(anchor, positive, bool(padding)), abs=1e-9)


def test_value_by_hand():
    """Logarithms 0, 1, 2, 3 and 0, 1, 3, 2 have a correlation of 0.8, at all four places."""
    anchor, positive = view([2]), view([2])
    here = torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=torch.float64).exp()
    there = torch.tensor([[0.0, 1.0], [3.0, 2.0]], dtype=torch.float64).exp()
    one, other = (
        replace(given, attentions={1: weights.expand(1, HEADS, 2, 2)})
        for given, weights in ((anchor, here), (positive, there))
    )
    assert AttentionInformation([1])(one, other).item() == pytest.approx((1 + 1e-6) * 0.5 * math.log(0.36), abs=1e-12)


def test_at_most_samples_places_are_read_and_only_shared_ones():
    """Gradient shows which places were drawn: `samples` of each head and sentence, and all of fewer."""
    anchor, positive = view([7, 3], 1, 0.1), view([7, 3], 2, 0.1)
    leaf = anchor.attentions[1].requires_grad_()
    loss(samples=20)(anchor, positive).backward()
    read = leaf.grad != 0
    assert not (read & ~((leaf > 0) & (positive.attentions[1] > 0))).any()
    shared = (leaf > 0) & (positive.attentions[1] > 0)
    assert read[0].flatten(1).sum(1).tolist() == [20, 20]
    assert read[1].flatten(1).sum(1).tolist() == shared[1, :, :3, :3].flatten(1).sum(1).tolist()


def test_drawn_places_differ_from_call_to_call():
    anchor, positive = view([8, 8], 1), view([8, 8], 2)
    torch.manual_seed(0)
    first, second = (loss(samples=10)(anchor, positive).item() for _ in range(2))
    torch.manual_seed(0)
    assert loss(samples=10)(anchor, positive).item() == first != second


def test_sentences_with_few_places_can_be_left_out():
    """Two sentences have 49 places, all of which are drawn; the third has 9."""
    anchor, positive = view([7, 3, 7], 1), view([7, 3, 7], 2)
    made = loss(fewer="drop", samples=49)(anchor, positive).item()
    assert made == pytest.approx(literal(anchor, positive, at_least=49), abs=1e-9)
    assert made != pytest.approx(literal(anchor, positive), abs=1e-3)
    assert loss(fewer="drop", samples=50)(anchor, positive).item() == 0


def test_equal_views_have_finite_information_and_no_gradient():
    anchor = view([4, 6], 1)
    leaves = {block: weights.requires_grad_() for block, weights in anchor.attentions.items()}
    made = loss()(anchor, replace(anchor, attentions={k: w.detach() for k, w in leaves.items()}))
    assert made.item() == pytest.approx((1 + 1e-6) * 0.5 * math.log(1e-6), abs=1e-9)
    made.backward()
    assert all(not leaf.grad.any() for leaf in leaves.values())


def test_nothing_shared_gives_zero():
    anchor = view([3])
    empty = replace(anchor, attentions={block: torch.zeros_like(w) for block, w in anchor.attentions.items()})
    leaves = {block: w.clone().requires_grad_() for block, w in anchor.attentions.items()}
    made = loss()(replace(anchor, attentions=leaves), empty)
    assert made.item() == 0
    made.backward()
    assert all(not leaf.grad.any() for leaf in leaves.values())


def test_gradient_is_exact():
    anchor, positive = view([3, 4], 1), view([3, 4], 2)
    inputs = [(w + 0.1).requires_grad_() for v in (anchor, positive) for w in v.attentions.values()]

    def value(*weights):
        here, there = (dict(zip(BLOCKS, part, strict=True)) for part in (weights[:2], weights[2:]))
        return loss()(replace(anchor, attentions=here), replace(positive, attentions=there))

    assert torch.autograd.gradcheck(value, inputs)


def test_views_of_different_lengths_are_refused():
    with refuses("losses.view_length_mismatch", 4, 5):
        loss()(view([4]), view([5]))
