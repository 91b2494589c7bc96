import math
from functools import partial

import pytest
import torch

from registry.losses.mixed_info_nce import MixedInfoNCE
from registry.types import Negatives
from tests.registry.losses.literal import cells, cross_entropy, draw, mixtures


@pytest.mark.parametrize(
    ("n", "kind", "normalize", "off"),
    [(5, "own", True, "out"), (2, "own", False, "out"), (5, "all", True, "out"), (5, "all", False, "zero")],
)
def test_equals_the_literal_form(n, kind, normalize, off):
    anchor, positive, _, _, negatives = draw(n, 3, seed=n)
    tau, scaled = 0.3, lambda c: c / 0.3
    loss = MixedInfoNCE(0.2, kind, normalize, off, temperature=tau)
    rows = cells(scaled, scaled, (anchor, positive), negatives)
    more = mixtures(kind, anchor.tolist(), positive.tolist(), 0.2, tau, normalize, off)
    expected = cross_entropy([row + [(x, False) for x in made] for row, made in zip(rows, more, strict=True)])
    assert loss(anchor, positive, negatives).item() == pytest.approx(expected, abs=1e-9)


def test_value_by_hand():
    # Two sentences at a right angle, alike in both views: the mixture is (0.6, 0.4), of length √0.52.
    views = torch.eye(2), torch.eye(2)
    none = Negatives.none(views[0])
    mixed = 0.6 / math.sqrt(0.52)
    own = math.log(math.e + 1 + math.exp(mixed)) - 1
    assert MixedInfoNCE(0.6, temperature=1.0)(*views, none).item() == pytest.approx(own, abs=1e-6)
    # Of two sentences the cells that are off are each other's: what is left beside s(h, h⁺) is 0.6/√0.52 twice.
    released = math.log(math.e + 1 + 2 * math.exp(mixed)) - 1
    assert MixedInfoNCE(0.6, "all", temperature=1.0)(*views, none).item() == pytest.approx(released, abs=1e-6)
    zero = math.log(math.e + 3 + 2 * math.exp(mixed)) - 1
    assert MixedInfoNCE(0.6, "all", off="zero", temperature=1.0)(*views, none).item() == pytest.approx(zero, abs=1e-6)


@pytest.mark.parametrize("kind", ["own", "all"])
def test_no_gradient_through_a_mixture(kind):
    """With it held as it is, finite differences give the gradient."""
    anchor, positive = (v.requires_grad_() for v in draw(3, 0)[:2])
    loss = MixedInfoNCE(0.2, kind, temperature=0.4)
    left, right = loss._mixed(anchor), loss._mixed(positive)
    assert not left.requires_grad
    assert not right.requires_grad
    loss._mixed = lambda v: left if v is anchor else right
    assert torch.autograd.gradcheck(partial(loss, negatives=Negatives.none(anchor)), (anchor, positive))
