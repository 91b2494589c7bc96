"""Who is told how a search goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cse_cli.core.console import SilentObserver
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.results import Trial

Ending = Literal["budget", "exhausted", "timeout"]
"""All trials are done; every point of the space is; no trial was begun after the time was over."""


class SearchObserver(SilentObserver):
    """Is told of a search's progress, and of that of its runs; says nothing."""

    def opened(self, config: SearchConfig, done: int, budget: int, devices: Sequence[str]) -> None:
        """The study exists with `done` of `budget` trials, and its workers are about to begin."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """A trial of this process begins."""

    def trial_ended(self, trial: Trial, best: bool) -> None:
        """A trial of this command came to its end; `best`: none that was complete before was as good."""

    def retried(self, number: int, lost: int) -> None:
        """Trial `lost`, whose process is gone, is repeated under a new number."""

    def waiting(self, count: int) -> None:
        """Only trials of other processes are left; if one of these dies, its trial is repeated here."""

    def interrupted(self, name: str) -> None:
        """The search was stopped; the study is kept under this name."""
