"""An optimizer and a schedule."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field

from registry import OPTIMIZERS, SCHEDULES
from registry.types import Optimizer, Schedule


@OPTIMIZERS.register("momentum")
class Momentum(Optimizer):
    """Gradient descent with momentum.

    Args:
        momentum: Share of the last step in the next one.
    """

    copies = 1

    def __init__(self, momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9) -> None:
        self.momentum = momentum

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch."""
        return torch.optim.SGD(groups, lr=learning_rate, momentum=self.momentum)


@SCHEDULES.register("halved")
class Halved(Schedule):
    """Halve the learning rate several times, at equal distances.

    Args:
        times: Number of changes.
    """

    def __init__(self, times: Annotated[int, Field(ge=1)] = 1) -> None:
        self.times = times

    def rate(self, peak: float, step: int, total: int, warmup: int) -> float:
        """Return the learning rate of a step."""
        return peak / 2 ** ((step - warmup) * (self.times + 1) // max(1, total - warmup))
