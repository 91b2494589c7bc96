"""Base class of all components."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from registry.declarations import Step
    from registry.types import Encoder


class Component:
    """Base class of all components. By default, its hooks do nothing."""

    stateful: ClassVar[bool] = True
    """Whether checkpoints contain the weights. False for frozen modules that are loaded by name."""

    def bind(self, encoder: Encoder) -> None:
        """Store the encoder of the view of an augmenter or a queue. Called once.

        Raises:
            CseError: If the two are not compatible, for example because their widths differ.
        """

    def after_step(self, step: Step) -> None:
        """Update the state after a step of the optimizer, for example of a queue or a momentum encoder."""

    def report(self) -> dict[str, float]:
        """Return metric → value for the run's record, such as the number of unchanged sentences."""
        return {}

    def notices(self) -> list[str]:
        """Return warnings for the user. Each is shown once."""
        return []
