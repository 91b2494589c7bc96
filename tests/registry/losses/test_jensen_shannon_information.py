import math
from dataclasses import replace

import pytest
import torch

from registry.losses.jensen_shannon_information import JensenShannonInformation
from registry.tokens import Encoded, Tokens
from tests.support.errors import refuses


def encoded(lengths, dim=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    tokens = Tokens(mask, mask, mask, torch.arange(longest).expand_as(mask))
    hidden = torch.randn(len(lengths), longest, dim, generator=g, dtype=torch.float64)
    return Encoded(torch.randn(len(lengths), dim, generator=g, dtype=torch.float64), hidden, hidden, tokens)


def literal(view):
    """The authors' sums, token by token, with softplus(−r) + r for the other sentences."""
    lengths = view.tokens.mask.sum(1).tolist()
    own = others = 0.0
    for i, length in enumerate(lengths):
        for token in view.hidden[i, :length].tolist():
            for j, sentence in enumerate(view.sentence.tolist()):
                r = sum(a * b for a, b in zip(token, sentence, strict=True))
                softplus = math.log(1 + math.exp(-r))
                if i == j:
                    own += math.log(2) - softplus
                else:
                    others += softplus + r - math.log(2)
    return others / (sum(lengths) * (len(lengths) - 1)) - own / sum(lengths)


def test_value_by_hand_and_of_one_sentence():
    # Two sentences of one token, each orthogonal to the other: r is 1 for the own sentence and 0 for the other one.
    view = encoded([1, 1], dim=2)
    axes = torch.eye(2, dtype=torch.float64)
    made = JensenShannonInformation()(replace(view, sentence=axes, hidden=axes[:, None]))
    assert made.item() == pytest.approx(math.log(1 + math.exp(-1)) - math.log(2), abs=1e-12)
    view = encoded([2])
    r = [sum(a * b for a, b in zip(t, view.sentence[0].tolist(), strict=True)) for t in view.hidden[0].tolist()]
    expected = -sum(math.log(2) - math.log(1 + math.exp(-each)) for each in r) / 2
    assert JensenShannonInformation()(view).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("lengths", [[3, 1], [4, 4, 4], [1, 7, 2, 5, 5]])
def test_equals_the_authors_sums(lengths):
    for seed in range(3):
        view = encoded(lengths, seed=seed)
        assert JensenShannonInformation()(view).item() == pytest.approx(literal(view), abs=1e-9)


def test_large_products_stay_finite_and_unlike_widths_are_named():
    view = encoded([3, 2])
    far = replace(view, hidden=view.hidden * 1e4)
    assert torch.isfinite(JensenShannonInformation()(far))
    view = encoded([2, 2])
    with refuses("losses.width_mismatch", 5, 3):
        JensenShannonInformation()(replace(view, sentence=view.sentence[:, :3]))


def test_gradient_is_exact():
    view = encoded([2, 3, 1])
    inputs = [view.hidden.requires_grad_(), view.sentence.requires_grad_()]
    assert torch.autograd.gradcheck(
        lambda hidden, sentence: JensenShannonInformation()(replace(view, hidden=hidden, sentence=sentence)), inputs
    )
