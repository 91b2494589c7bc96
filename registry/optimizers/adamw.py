"""AdamW, the default."""

from __future__ import annotations

from typing import Any

import torch

from registry import OPTIMIZERS
from registry.adamw import UncorrectedAdamW
from registry.types import Betas, Optimizer, Positive


@OPTIMIZERS.register("adamw")
class AdamW(Optimizer):
    """Adam with weight decay that does not depend on the gradient.

    Args:
        betas: Decay rates of the running means of the gradient and of its square.
        epsilon: Term in the denominator of the update.
        bias_correction: Whether the bias of the running means towards 0 is corrected. The optimizer of BERT, and
            sentence-transformers before version 1, used false.

    Source: Loshchilov and Hutter 2019 (`torch.optim.AdamW`); Devlin et al. 2019 without the correction.

    Example:
        [train]
        optimizer = "adamw"
        epsilon = 1e-6
        bias_correction = false
    """

    def __init__(
        self,
        betas: Betas = [0.9, 0.999],  # noqa: B006 - a declaration, never changed
        epsilon: Positive = 1e-8,
        bias_correction: bool = True,
    ) -> None:
        self.betas, self.epsilon = (betas[0], betas[1]), epsilon
        self.kind = torch.optim.AdamW if bias_correction else UncorrectedAdamW

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch."""
        return self.kind(groups, lr=learning_rate, fused=True, eps=self.epsilon, betas=self.betas)
