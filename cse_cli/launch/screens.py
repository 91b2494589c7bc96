"""What a run's own process shows of it, where another one started it."""

from __future__ import annotations

from collections.abc import Callable

from cse_cli.observer import Started
from cse_cli.progress import Screen


class BegunScreen(Screen):
    """The screen of a single run, which also passes on which run it is.

    Args:
        begun: Is given the run's id.
    """

    def __init__(self, begun: Callable[[str], None]) -> None:
        super().__init__()
        self._begun = begun

    def started(self, run: Started) -> None:
        """Pass it on, and show it."""
        self._begun(run.run_id)
        super().started(run)


class RunLines(BegunScreen):
    """Lines of one run among several at once, each of which is shown with the run's name before it."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say nothing."""
