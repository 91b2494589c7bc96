import math

import pytest
import torch

from registry.losses.cosent import CoSENT
from tests.registry.losses import literal as slow

LABELS = torch.tensor([3.0, 0.0, 5.0, 3.0, 1.0])
"""With a tie."""


def test_value_by_hand_and_equal_labels():
    # Cosines 0.6 and 1: the second pair has the lower label, so that e^(1 − 0.6) is added.
    anchor, positive = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    value = CoSENT(temperature=1.0)(anchor, positive, torch.tensor([5.0, 0.0]))
    assert value.item() == pytest.approx(math.log(1 + math.exp(0.4)), abs=1e-6)
    anchor, positive = (t.requires_grad_() for t in slow.draw(4, 0)[:2])
    value = CoSENT()(anchor, positive, torch.ones(4))
    value.backward()
    assert value.item() == 0
    assert not anchor.grad.any()


def test_equals_sentence_transformers():
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    anchor, positive, *_ = slow.draw(5, 0)
    theirs = losses.CoSENTLoss(model=None).compute_loss_from_embeddings([anchor, positive], LABELS)
    assert CoSENT()(anchor, positive, LABELS).item() == pytest.approx(theirs.item(), abs=1e-6)
