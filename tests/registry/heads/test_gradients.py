"""The gradient of every head is the derivative of its values."""

import pytest
import torch

from registry import HEADS
from registry.testing.materials import WidthOnly, draw

GROUPS = (("anchor", 3), ("repeated", 3), ("composed", 3))
CASES = [
    ("batch_norm_elu", {"together": []}),
    ("batch_norm_elu", {"together": ["repeated", "composed"]}),
    ("batch_norm_elu", {"together": "all"}),
    ("batch_norm_mlp", {"blocks": 1, "expansion": 2}),
    ("batch_norm_relu", {}),
    ("feed_forward", {"hidden": 5, "width": 3, "activation": "gelu", "last_activation": True}),
    ("feed_forward", {"width": 3, "bias": False}),
    ("predictor", {"layers": 2, "dropout": 0.0}),
    ("projection", {"layers": 2, "width": 3, "dropout": 0.0}),
    ("pseudo_tokens", {"tokens": 3, "attention_heads": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), CASES)
def test_gradient_is_the_derivative(name, values):
    torch.manual_seed(0)
    head = HEADS[name].build(values)
    head.fit(4, WidthOnly(4))
    head.double().train(name != "pseudo_tokens")  # the dropout of its defaults
    for weights in head.parameters():
        torch.nn.init.normal_(weights)
    pooled = draw(1, 9, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: head(pooled, GROUPS), [pooled, *head.parameters()])  # moved in place
