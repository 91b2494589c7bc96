"""Base classes of optimizers and of schedules of the learning rate, which `train.optimizer` and `train.schedule` name.

A parameter with the name of a key of [train], such as `betas`, has the value of this key. The keys `optimizer_settings`
and `schedule_settings` of [train] set the others.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from registry.component import Component

Decay = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Decay], Field(min_length=2, max_length=2)]
Positive = Annotated[float, Field(gt=0)]


class Optimizer(Component):
    """Base class of optimizers.

    Examples:
        >>> class Momentum(Optimizer):
        ...     '''Gradient descent with momentum.'''
        ...
        ...     copies = 1
        ...
        ...     def __init__(self, momentum: Decay = 0.9) -> None:
        ...         self.momentum = momentum
        ...
        ...     def build(self, groups, learning_rate):
        ...         return torch.optim.SGD(groups, lr=learning_rate, momentum=self.momentum)
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> Momentum().build([{"params": [weight], "weight_decay": 0.0}], 0.1).param_groups[0]["momentum"]
        0.9
    """

    copies: ClassVar[int] = 2
    """Number of values that it keeps for each trained weight, to estimate the size of a checkpoint."""

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch.

        Args:
            groups: Groups of weights with their "weight_decay", as torch takes them.
            learning_rate: Peak learning rate. Each step sets the one of the schedule.
        """
        raise NotImplementedError


class Schedule(Component):
    """Base class of schedules of the learning rate after the warm-up.

    Examples:
        >>> class Halved(Schedule):
        ...     '''Half of the learning rate in the second half of the training.'''
        ...
        ...     def rate(self, peak, step, total, warmup):
        ...         return peak if step < total / 2 else peak / 2
        >>> [Halved().rate(1.0, step, 4, 0) for step in range(4)]
        [1.0, 1.0, 0.5, 0.5]
    """

    def rate(self, peak: float, step: int, total: int, warmup: int) -> float:
        """Return the learning rate of a step.

        Args:
            peak: Peak learning rate.
            step: Number of finished steps, at least `warmup`.
            total: Number of steps of the training.
            warmup: Number of steps of the warm-up, in which the learning rate rises linearly to the peak.
        """
        raise NotImplementedError
