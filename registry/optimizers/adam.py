"""Adam."""

from __future__ import annotations

from typing import Any

import torch

from registry import OPTIMIZERS
from registry.types import Betas, Optimizer, Positive


@OPTIMIZERS.register("adam")
class Adam(Optimizer):
    """Adam. Weight decay is a quadratic penalty.

    Args:
        betas: Decay rates of the running means of the gradient and of its square.
        epsilon: Term in the denominator of the update.

    Source: Kingma and Ba 2015 (`torch.optim.Adam`).

    Example:
        [train]
        optimizer = "adam"
    """

    def __init__(
        self,
        betas: Betas = [0.9, 0.999],  # noqa: B006 - a declaration, never changed
        epsilon: Positive = 1e-8,
    ) -> None:
        self.betas, self.epsilon = (betas[0], betas[1]), epsilon

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch."""
        return torch.optim.Adam(groups, lr=learning_rate, fused=True, eps=self.epsilon, betas=self.betas)
