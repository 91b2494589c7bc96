"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import torch

from registry import OPTIMIZERS
from registry.types import Optimizer


@OPTIMIZERS.register("sgd")
class SGD(Optimizer):
    """Stochastic gradient descent without momentum. Weight decay is a quadratic penalty.

    Source: `torch.optim.SGD`.

    Example:
        [train]
        optimizer = "sgd"
        learning_rate = 0.1
    """

    copies = 0

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch."""
        return torch.optim.SGD(groups, lr=learning_rate, fused=True)
