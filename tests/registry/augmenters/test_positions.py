import pytest
import torch

from registry.augmenters.positions import choose, in_scope, share
from tests.registry.augmenters.literal import batch


def test_share_by_hand():
    """⌊5·0.3⌋ = 1, ⌊10·0.3⌋ = 3, ⌊3·0.3⌋ = 0, and at least 2 of these but never more than there are."""
    assert share(torch.tensor([5, 10, 3, 1]), 0.3).tolist() == [1, 3, 0, 0]
    assert share(torch.tensor([5, 10, 3, 1]), 0.3, at_least=2).tolist() == [2, 3, 2, 1]


@pytest.mark.parametrize("rate", [0.0, 0.29, 0.57, 0.99])
def test_share_is_pythons(rate):
    """100 · 0.29 is 28.999…: single precision would give 29."""
    sizes = list(range(1, 800))
    assert share(torch.tensor(sizes), rate).tolist() == [int(size * rate) for size in sizes]


def test_scope():
    tokens = batch([1, 3], 2).tokens
    assert in_scope(tokens, "real").tolist() == [[True, False, False], [True, True, True]]
    assert in_scope(tokens, "all").tolist() == [[True, True, True], [True, True, True]]


def test_choose_is_even():
    """Each of 6 places in a third of the draws: 2000 of 6000, standard deviation 37; pairs alike: 400, 19."""
    torch.manual_seed(0)
    chosen = choose(torch.ones(6000, 6, dtype=torch.bool), torch.full((6000,), 2))
    assert (chosen.sum(0) - 2000).abs().max() < 4 * 37
    pairs = chosen.long().T @ chosen.long()
    assert (pairs[~torch.eye(6, dtype=torch.bool)] - 400).abs().max() < 4 * 19
