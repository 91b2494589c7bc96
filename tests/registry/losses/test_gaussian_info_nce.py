import math

import pytest
import torch
import torch.nn.functional as F

from registry.losses.gaussian_info_nce import GaussianInfoNCE
from registry.losses.info_nce import InfoNCE
from registry.types import Negatives
from tests.registry.losses.literal import draw


def as_the_authors_code(z1, z2, z3, scored, alpha):
    """The loss by the steps of main/models/gcse.py:117-148; `scored` are the scorer's logits of the hard negatives."""

    def logits(x, y):
        return F.cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=-1) / 0.05

    hard = logits(z1, z3)
    weight = torch.diag(hard).detach()
    diff = weight - scored
    weight = torch.where(diff > 0, 0, -weight * torch.exp(-(diff**2) / (2 * alpha**2)))
    cells = torch.cat([logits(z1, z2), hard], 1)
    added = torch.tensor(
        [[0.0] * len(z1) + [0.0] * i + [weight[i]] + [0.0] * (len(z1) - i - 1) for i in range(len(z1))],
        dtype=z1.dtype,
    )
    return F.cross_entropy(cells + added, torch.arange(len(z1)))


@pytest.mark.parametrize("alpha", [0.17, 5.0])
def test_equals_the_authors_code(alpha):
    """Scorers below, at and just above the student's own cosine; with α = 5 far ones count as well."""
    anchor, positive, hard, _, _ = draw(8, 0)
    for view in (anchor, positive, hard):
        view.requires_grad_()
    own = F.cosine_similarity(anchor, hard).detach()
    near = (own + torch.tensor([-0.3, -1e-3, 0.0, 1e-3, 5e-3, 8e-3, 0.02, 0.3])).clamp(-1, 1)
    reference = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(8, 2)
    reference_hard = torch.stack([near, (1 - near**2).sqrt()], dim=1)
    expected = as_the_authors_code(anchor, positive, hard, near / 0.05, alpha)
    value = GaussianInfoNCE(width=alpha)(anchor, positive, hard, reference, reference_hard)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    views = (anchor, positive, hard)
    for mine, theirs in zip(torch.autograd.grad(value, views), torch.autograd.grad(expected, views), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)


def test_value_by_hand():
    # Sentences at right angles, and hard negatives equal to the anchors. The scorer agrees for the first, which is
    # decayed from e¹ to e⁰. For the second it has the cosine 0.5, which is below the student's.
    eye = torch.eye(2)
    scorer = torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5]])
    expected = (math.log(math.e + 1 + 1 + 1) - 1 + math.log(math.e + 1 + math.e + 1) - 1) / 2
    found = GaussianInfoNCE(temperature=1.0)(eye, eye, eye, torch.tensor([[1.0, 0.0]] * 2), scorer)
    assert found.item() == pytest.approx(expected, abs=1e-6)
    anchor, positive, hard, _, _ = draw(5, 0)
    far = -torch.ones(5, 1, dtype=torch.float64)
    plain = InfoNCE()(anchor, positive, Negatives.none(anchor), hard=hard)
    assert GaussianInfoNCE()(anchor, positive, hard, far, -far).item() == pytest.approx(plain.item(), rel=1e-12)
