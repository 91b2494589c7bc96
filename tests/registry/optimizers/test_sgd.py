import pytest
import torch

from registry import OPTIMIZERS


def test_first_step_by_hand():
    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = OPTIMIZERS["sgd"].build({}).build([{"params": [weight], "weight_decay": 0.2}], 0.1)
    weight.grad = torch.tensor([0.5, -3.0])
    optimizer.step()
    # Gradient with the penalty: 0.5 + 0.2·2 and −3 − 0.2·1.
    assert weight.tolist() == pytest.approx([2.0 - 0.1 * 0.9, -1.0 + 0.1 * 3.2], abs=1e-6)
