import pytest
import torch
import torch.nn.functional as F

from registry.losses.cross_contrast import CrossContrast
from registry.losses.nt_xent import NTXent
from registry.types import Negatives
from tests.registry.losses.literal import draw


def as_the_authors_code(left, right, tau):
    """ICNCE by the arithmetic of model_dual.py:87-99, for rows (2N, D) whose copies are neighbors."""
    wanted = torch.arange(len(left))
    wanted = (wanted - wanted % 2 * 2) + 1
    cosines = F.cosine_similarity(left.unsqueeze(1), right.unsqueeze(0), dim=-1)
    return F.cross_entropy((cosines - torch.eye(len(left)) * 1e12) / tau, wanted)


def interleaved(one, other):
    return torch.stack([one, other], dim=1).flatten(0, 1)


@pytest.mark.parametrize("n", [1, 5])
def test_equals_the_authors_code(n):
    views = draw(n, 0, seed=n)[:4]
    for view in views:
        view.requires_grad_()
    expected = as_the_authors_code(interleaved(*views[:2]), interleaved(*views[2:]), 0.05)
    value = CrossContrast()(*views)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)
    for own, theirs in zip(torch.autograd.grad(value, views), torch.autograd.grad(expected, views), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-7, atol=1e-9)


def test_with_one_encoder_it_is_nt_xent():
    anchor, positive, *_ = draw(5, 0)
    expected = NTXent(0.05, reduction="mean")(anchor, positive, Negatives.none(anchor))
    assert CrossContrast()(anchor, positive, anchor, positive).item() == pytest.approx(expected.item(), rel=1e-12)
