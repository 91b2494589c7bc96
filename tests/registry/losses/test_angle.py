import math

import pytest
import torch

from registry.losses.angle import AnglE
from tests.registry.losses import literal as slow
from tests.registry.losses.test_cosent import LABELS


def test_value_by_hand():
    # 1 and 1: Re 1, Im 0. i/2 and 1: Re 0, Im 1. 1 and −1: |Re| 1. 1+i and 1: (1 + 1)/√2.
    anchor = torch.tensor([[1.0, 0.0], [0.0, 0.5], [1.0, 0.0], [1.0, 1.0]])
    positive = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    similarities = AnglE().similarity(anchor, positive)
    assert similarities.tolist() == pytest.approx([1.0, 1.0, 1.0, math.sqrt(2)], abs=1e-6)
    value = AnglE(temperature=1.0)(anchor, positive, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert value.item() == pytest.approx(math.log(1 + 3 * math.exp(math.sqrt(2) - 1)), abs=1e-6)


@pytest.mark.parametrize("dim", [6, 5])
def test_equals_sentence_transformers(dim):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    anchor, positive, *_ = slow.draw(5, 0, dim)
    theirs = losses.AnglELoss(model=None).compute_loss_from_embeddings([anchor, positive], LABELS)
    assert AnglE()(anchor, positive, LABELS).item() == pytest.approx(theirs.item(), abs=1e-6)
