"""AdamW, the default."""

from __future__ import annotations

from typing import Any

import torch

from registry import OPTIMIZERS
from registry.adamw import EarlierAdamW
from registry.types import Betas, Optimizer, Positive


@OPTIMIZERS.register("adamw")
class AdamW(Optimizer):
    """Adam with weight decay that does not depend on the gradient.

    Args:
        betas: Decay rates of the running means of the gradient and of its square.
        epsilon: Term in the denominator of the update.
        bias_correction: Whether the bias of the running means towards 0 is corrected. The optimizer of BERT, and
            sentence-transformers before version 1, used false.
        epsilon_before_correction: Whether ε is added before the bias correction of the second moment: an ε that is
            divided by √(1 − β₂ᵗ), 32 times larger at the first step. transformers before version 5 used true.

    Source: Loshchilov and Hutter 2019 (`torch.optim.AdamW`); Devlin et al. 2019 without the correction; Kingma and Ba
        2015, end of Section 2, for ε before it.

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
        epsilon_before_correction: bool = False,
    ) -> None:
        self.betas, self.epsilon = (betas[0], betas[1]), epsilon
        self.bias_correction = bias_correction
        self.earlier = epsilon_before_correction or not bias_correction

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer."""
        options: dict[str, Any] = {"lr": learning_rate, "fused": True, "eps": self.epsilon, "betas": self.betas}
        if self.earlier:
            return EarlierAdamW(groups, bias_correction=self.bias_correction, **options)
        return torch.optim.AdamW(groups, **options)
