import pytest
import torch

from registry import OPTIMIZERS


def test_first_step_by_hand():
    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = OPTIMIZERS["adamw"].build({}).build([{"params": [weight], "weight_decay": 0.5}], 0.1)
    weight.grad = torch.tensor([0.5, -3.0])
    optimizer.step()
    # Decay: p·(1 − 0.1·0.5) = 1.9 and −0.95. First step of corrected means: 0.1 against the sign of the gradient.
    assert weight.tolist() == pytest.approx([1.9 - 0.1, -0.95 + 0.1], abs=1e-6)
