import math

import pytest
import torch

from registry.losses.peer_agreement import PeerAgreement
from tests.registry.losses.test_peer_positives import distribution, draw


def literal(one, other, temperature, compare, reduction):
    (anchor, positives), (peer, peers) = one, other
    if compare == "within":
        found = distribution(anchor, positives, anchor, temperature)
        wanted = distribution(peer, peers, peer, temperature)
    else:
        found = distribution(anchor, peers, peer, temperature)
        wanted = distribution(peer, positives, anchor, temperature)
    total = sum(q * math.log(q / p) for ps, qs in zip(found, wanted, strict=True) for p, q in zip(ps, qs, strict=True))
    return total / len(found) / (len(found[0]) if reduction == "cells" else 1)


@pytest.mark.parametrize(
    ("n", "k", "compare", "reduction"), [(1, 2, "across", "cells"), (2, 1, "within", "cells"), (5, 3, "across", "rows")]
)
def test_matches_the_equation(n, k, compare, reduction):
    one, other = draw(n, k, seed=1), draw(n, k, seed=2)
    found = PeerAgreement(compare, 0.3, reduction)(*one, *other)
    assert found.item() == pytest.approx(literal(one, other, 0.3, compare, reduction), abs=1e-9)


def test_value_by_hand():
    # One network tells two sentences apart, e^{1/τ} = 3 against 1; for its peer all are one: (3/4, 1/4) and (1/2, 1/2).
    anchor, peer = torch.eye(2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    found = PeerAgreement("within", 1 / math.log(3), "rows")(anchor, (anchor,), peer, (peer,))
    assert found.item() == pytest.approx(math.log(1 / 2 / (3 / 4)) / 2 + math.log(1 / 2 / (1 / 4)) / 2, abs=1e-9)
