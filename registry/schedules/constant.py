"""A constant learning rate."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

from pydantic import Field

from registry import SCHEDULES
from registry.types import Positive, Schedule

Steps = Annotated[int, Field(gt=0)]


@SCHEDULES.register("constant")
class Constant(Schedule):
    """Keep the learning rate, or change it at given steps.

    Args:
        milestones: Steps after which the next of `learning_rates` is used, ascending. Default: none.
        learning_rates: Learning rate from each milestone on.

    Example:
        [train]
        schedule = "constant"
        milestones = [100]
        learning_rates = [1e-5]
    """

    def __init__(self, milestones: list[Steps] | None = None, learning_rates: list[Positive] | None = None) -> None:
        self.milestones, self.learning_rates = milestones or [], learning_rates or []

    def rate(self, peak: float, step: int, total: int, warmup: int) -> float:  # noqa: ARG002 - the hook's form
        """Return the learning rate of a step."""
        return (peak, *self.learning_rates)[bisect_right(self.milestones, step)]
