"""Observers of a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cse_cli.core.console import Observer, SilentObserver, Warned
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.results import Trial

Ending = Literal["budget", "exhausted", "timeout"]
"""Why a search ends: all trials are done, every point of the space was tried, or the time is over."""


class SearchObserver(SilentObserver):
    """Base class for search observers. Every method does nothing."""

    def observer_of(self, number: int, *, alone: bool) -> Observer:
        """Return the observer of a run of a trial. `alone`: no other run is active."""
        return self if alone else RunWarnings(f"trial {number}", self)

    def opened(self, config: SearchConfig, done: int, budget: int, place: str, at_once: int) -> None:
        """The study is open, with `done` of `budget` trials. `at_once` trials will run in parallel at `place`."""

    def trial_began(self, number: int, values: Mapping[str, Value]) -> None:
        """A trial starts."""

    def trial_ended(self, trial: Trial, best: bool, done: int) -> None:
        """A trial ended, so `done` trials have ended. `best`: it is better than all complete trials before it."""

    def trial_invalid(self, trial: Trial) -> None:
        """The parts of a trial are not compatible. It is not run and does not count."""

    def resumed(self, number: int) -> None:
        """A trial that another process left is resumed."""

    def interrupted(self, name: str) -> None:
        """The search was stopped."""


class RunWarnings(SilentObserver):
    """Forwards the warnings of one of several runs."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._name = name
        self._observer = observer

    def warned(self, text: str) -> None:
        """Forward a warning."""
        self._observer.observe(Warned(f"{self._name}: {text}"))
