import math
from functools import partial

import pytest
import torch

from registry.heads.batch_norm_mlp import BatchNormMlp
from registry.testing.materials import draw
from tests.registry.heads.literal import fit_head, linear

fitted = partial(fit_head, BatchNormMlp)


def normalized(rows):
    """Each column over these rows, biased variance."""
    columns = []
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        variance = sum((x - mean) ** 2 for x in column) / len(column)
        columns.append([(x - mean) / math.sqrt(variance + 1e-5) for x in column])
    return [list(row) for row in zip(*columns, strict=True)]


def bent(rows):
    return [[max(0.0, x) for x in row] for row in rows]


def literal(head, rows):
    for place in range(head.blocks):
        rows = bent(normalized([linear(head.first[place], row) for row in rows]))
        rows = bent([linear(head.second[place], row) for row in rows])
        rows = [linear(head.third[place], row) for row in rows]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("blocks", "expansion"), [(1, 4), (3, 1)])
def test_every_view_by_itself_equals_the_literal_form(blocks, expansion):
    torch.manual_seed(blocks)
    head = fitted(5, blocks=blocks, expansion=expansion).double()
    pooled = draw(3, 7, 5).double()
    expected = torch.cat([literal(head, pooled[:4].tolist()), literal(head, pooled[4:].tolist())])
    found = head(pooled, (("anchor", 4), ("positive", 3)))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    together = fitted(5, blocks=blocks, expansion=expansion, together="all").double()
    together.load_state_dict(head.state_dict())
    torch.testing.assert_close(
        together(pooled, (("anchor", 4), ("positive", 3))), literal(head, pooled.tolist()), atol=1e-9, rtol=0
    )


def test_worked_by_hand():
    """One dimension, m = 1: (0, 2) → normalized (−1, 1) → max(0, ·) → 3·x + 1 = (1, 4) → −x = (−1, −4)."""
    head = fitted(1, blocks=1, expansion=1)
    with torch.no_grad():
        for layer, (weight, bias) in zip((head.first, head.second, head.third), ((5, 2), (3, 1), (-1, 0)), strict=True):
            layer[0].weight.fill_(weight)
            layer[0].bias.fill_(bias)
    assert head(torch.tensor([[0.0], [2.0]]), ()).flatten().tolist() == pytest.approx([-1.0, -4.0], abs=1e-5)
