import pytest
import torch

from registry import OPTIMIZERS


def test_first_step_by_hand():
    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = OPTIMIZERS["rmsprop"].build({"epsilon": 1e-12}).build([{"params": [weight], "weight_decay": 0.0}], 0.1)
    weight.grad = torch.tensor([0.5, -3.0])
    optimizer.step()
    # Mean of squares 0.01·g², so that the step is 0.1·g/(0.1·|g|) = 1 against the sign.
    assert weight.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
