import pytest
import torch

from registry import OPTIMIZERS


def test_first_step_by_hand():
    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = OPTIMIZERS["adam"].build({}).build([{"params": [weight], "weight_decay": 0.0}], 0.1)
    weight.grad = torch.tensor([0.5, -3.0])
    optimizer.step()
    # The corrected means of the first step are the gradient and its square: 0.1 against its sign.
    assert weight.tolist() == pytest.approx([1.9, -0.9], abs=1e-6)
