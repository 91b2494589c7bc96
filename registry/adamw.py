"""AdamW without bias correction."""

from __future__ import annotations

import math
from typing import Any

import torch


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without bias correction, as BERT was trained: p ← p·(1 − ηλ) − η·m/(√v + ε).

    torch's AdamW corrects m/(1 − β₁ᵗ) and v/(1 − β₂ᵗ). Each step sets the learning rate, decay and ε that undo this.

    Source: Devlin et al. 2019 (`AdamWeightDecayOptimizer`); `correct_bias = False` of transformers before version 5.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        asked = [{key: group[key] for key in ("lr", "eps", "weight_decay")} for group in self.param_groups]
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            first, second = (1 - beta ** group["steps"] for beta in group["betas"])
            shrunk = first / math.sqrt(second)
            group["lr"] *= shrunk
            group["eps"] /= math.sqrt(second)
            group["weight_decay"] /= shrunk
        value = super().step(closure)
        for group, own in zip(self.param_groups, asked, strict=True):
            group.update(own)
        return value
