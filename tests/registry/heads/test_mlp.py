import math
from functools import partial

import torch

from registry.heads.mlp import Mlp
from tests.registry.heads.literal import fit_head

fitted = partial(fit_head, Mlp)


def test_worked_by_hand():
    head = fitted(2)
    head.load_state_dict(
        {"linear.weight": torch.tensor([[1.0, 2.0], [0.0, -1.0]]), "linear.bias": torch.tensor([0.5, 0.0])}
    )
    out = head(torch.tensor([[0.1, 0.2]]), ())[0].tolist()
    assert abs(out[0] - math.tanh(1.0)) < 1e-6
    assert abs(out[1] - math.tanh(-0.2)) < 1e-6
