"""RMSprop."""

from __future__ import annotations

from typing import Any

import torch

from registry import OPTIMIZERS
from registry.types import Optimizer, Positive


@OPTIMIZERS.register("rmsprop")
class RMSprop(Optimizer):
    """RMSprop. Weight decay is a quadratic penalty.

    Args:
        epsilon: Term in the denominator of the update.

    Source: Tieleman and Hinton 2012 (`torch.optim.RMSprop`).

    Example:
        [train]
        optimizer = "rmsprop"
    """

    copies = 1

    def __init__(self, epsilon: Positive = 1e-8) -> None:
        self.epsilon = epsilon

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch."""
        return torch.optim.RMSprop(groups, lr=learning_rate, eps=self.epsilon)
