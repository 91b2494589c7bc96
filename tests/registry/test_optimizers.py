import pytest
import torch

from registry import OPTIMIZERS

CASES = [
    # The corrected means of the first step are the gradient and its square: 0.1 against its sign.
    ("adam", {}, 0.0, [1.9, -0.9]),
    # Decay: p·(1 − 0.1·0.5) = 1.9 and −0.95. First step of corrected means: 0.1 against the sign of the gradient.
    ("adamw", {}, 0.5, [1.9 - 0.1, -0.95 + 0.1]),
    # Mean of squares 0.01·g², so that the step is 0.1·g/(0.1·|g|) = 1 against the sign.
    ("rmsprop", {"epsilon": 1e-12}, 0.0, [1.0, 0.0]),
    # Gradient with the penalty: 0.5 + 0.2·2 and −3 − 0.2·1.
    ("sgd", {}, 0.2, [2.0 - 0.1 * 0.9, -1.0 + 0.1 * 3.2]),
]


@pytest.mark.parametrize(("name", "values", "decay", "expected"), CASES)
def test_first_step_by_hand(name, values, decay, expected):
    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = OPTIMIZERS[name].build(values).build([{"params": [weight], "weight_decay": decay}], 0.1)
    weight.grad = torch.tensor([0.5, -3.0])
    optimizer.step()
    assert weight.tolist() == pytest.approx(expected, abs=1e-6)
