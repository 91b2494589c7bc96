"""AdamW as older libraries compute it: without bias correction, or with ε added before it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch


class EarlierAdamW(torch.optim.AdamW):
    """AdamW whose ε is added to √v before the bias correction of the second moment.

    p ← p·(1 − ηλ) − η·√(1 − β₂ᵗ)/(1 − β₁ᵗ)·m/(√v + ε), or without bias correction p ← p·(1 − ηλ) − η·m/(√v + ε).
    torch adds ε after the correction: √(v/(1 − β₂ᵗ)) + ε. Each step sets the ε, the learning rate and the decay with
    which torch's step gives this one.

    Args:
        weights: Weights, or groups of them, as `torch.optim.AdamW` takes them.
        bias_correction: Whether the bias of m and v towards 0 is corrected.
        options: Settings of `torch.optim.AdamW`.

    Source: Kingma and Ba 2015, end of Section 2 (ε̂), as in transformers before version 5; Devlin et al. 2019
        (`AdamWeightDecayOptimizer`) without the correction.
    """

    def __init__(self, weights: Iterable[Any], *, bias_correction: bool, **options: Any) -> None:
        super().__init__(weights, **options)
        self._bias_correction = bias_correction

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        asked = [{key: group[key] for key in ("lr", "eps", "weight_decay")} for group in self.param_groups]
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            first, second = (1 - beta ** group["steps"] for beta in group["betas"])
            group["eps"] /= math.sqrt(second)
            if not self._bias_correction:
                shrunk = first / math.sqrt(second)
                group["lr"] *= shrunk
                group["weight_decay"] /= shrunk
        value = super().step(closure)
        for group, own in zip(self.param_groups, asked, strict=True):
            group.update(own)
        return value
