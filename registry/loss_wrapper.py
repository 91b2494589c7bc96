"""Base class of losses that compute another loss."""

from __future__ import annotations

from registry.types import Loss


class LossWrapper(Loss):
    """Base class of losses that compute another loss several times, which the recipe names in their parameter `of`.

    `forward` receives the inputs of that loss by name.

    Args:
        of: Name of the loss in the recipe. The objective contains the wrapper instead.

    Examples:
        >>> class Doubled(LossWrapper):
        ...     '''Another loss, twice.'''
        ...
        ...     def __init__(self, of: Loss) -> None:
        ...         super().__init__(of)
        ...
        ...     def forward(self, **inputs):
        ...         return self.of(**inputs) + self.of(**inputs)
    """

    def __init__(self, of: Loss) -> None:
        super().__init__()
        self._of = (of,)  # in a tuple: not a sub-module
        self.steering, self.targets, self.reads_layers = of.steering, of.targets, of.reads_layers
        self.reads_hidden, self.reads_attentions = of.reads_hidden, of.reads_attentions

    @property
    def of(self) -> Loss:
        """The loss, which can be a wrapper."""
        return self._of[0]
