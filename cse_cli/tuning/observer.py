"""Who is told how a search goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cse_cli.core.console import Observer, SilentObserver
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.results import Trial

Ending = Literal["budget", "exhausted", "timeout"]
"""All trials are done; every point of the space is; no trial was begun after the time was over."""


class SearchObserver(SilentObserver):
    """Is told of a search's progress, and of that of its runs; says nothing."""

    def observer_of(self, number: int, *, alone: bool) -> Observer:
        """Return who is told how a run of a trial goes; `alone`: no other one runs meanwhile."""
        return self if alone else RunWarnings(f"trial {number}", self)

    def opened(self, config: SearchConfig, done: int, budget: int, place: str, at_once: int) -> None:
        """The study exists with `done` of `budget` trials, and so many at once are about to begin at a place."""

    def trial_began(self, number: int, values: Mapping[str, Value]) -> None:
        """A trial begins."""

    def trial_ended(self, trial: Trial, best: bool, done: int) -> None:
        """A trial ended, and `done` trials of the study have; `best`: none that was complete before was as good."""

    def trial_refused(self, trial: Trial) -> None:
        """The parts of a trial do not fit together; it is not run and does not count."""

    def resumed(self, number: int) -> None:
        """A trial that another process left is resumed."""

    def interrupted(self, name: str) -> None:
        """The search was stopped; the study is kept under this name."""


class RunWarnings(SilentObserver):
    """Passes on the warnings of one run among several.

    Args:
        name: Said before each.
        observer: Of all.
    """

    def __init__(self, name: str, observer: Observer) -> None:
        self._name = name
        self._observer = observer

    def warned(self, text: str) -> None:
        """Say whose it is."""
        self._observer.warned(f"{self._name}: {text}")
