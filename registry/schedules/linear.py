"""Linear decay, the default."""

from __future__ import annotations

from registry import SCHEDULES
from registry.types import Schedule


@SCHEDULES.register("linear")
class Linear(Schedule):
    """Decay the learning rate linearly to 0 after the last step.

    Example:
        [train]
        schedule = "linear"
        warmup_steps = 100
    """

    def rate(self, peak: float, step: int, total: int, warmup: int) -> float:
        """Return the learning rate of a step."""
        return peak * (total - step) / max(1, total - warmup)
