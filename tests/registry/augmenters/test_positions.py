import pytest
import torch

from registry.augmenters.positions import choose, share


@pytest.mark.parametrize("rate", [0.0, 0.29, 0.57, 0.99])
def test_share_is_pythons(rate):
    """100 · 0.29 is 28.999…: single precision would give 29."""
    sizes = list(range(1, 800))
    assert share(torch.tensor(sizes), rate).tolist() == [int(size * rate) for size in sizes]


def test_choose_is_even():
    """Each of 6 places in a third of the draws: 2000 of 6000, standard deviation 37; pairs alike: 400, 19."""
    torch.manual_seed(0)
    chosen = choose(torch.ones(6000, 6, dtype=torch.bool), torch.full((6000,), 2))
    assert (chosen.sum(0) - 2000).abs().max() < 4 * 37
    pairs = chosen.long().T @ chosen.long()
    assert (pairs[~torch.eye(6, dtype=torch.bool)] - 400).abs().max() < 4 * 19
