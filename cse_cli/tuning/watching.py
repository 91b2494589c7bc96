"""Watchers of a search that need no screen."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from cse_cli.observer import Silent
from cse_cli.tuning.plan import Ended, Opened, Value


class SilentWatcher(Silent):
    """Says nothing."""

    def opened(self, study: Opened) -> None:
        """Say nothing."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """Say nothing."""

    def trial_ended(self, trial: Ended) -> None:
        """Say nothing."""

    def repeats(self, number: int, lost: int) -> None:
        """Say nothing."""

    def waits(self, count: int) -> None:
        """Say nothing."""

    def left(self, name: str) -> None:
        """Say nothing."""


class Lines(SilentWatcher):
    """Writes a line on stderr for what a log should have."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """Write its values."""
        chosen = ", ".join(f"{name}={value}" for name, value in values.items()) or "the recipe itself"
        self._write(f"trial {number} of {budget}: {chosen}")

    def trial_ended(self, trial: Ended) -> None:
        """Write what came of it."""
        score = "" if trial.score is None else f" {trial.score:.4f}"
        why = "" if trial.reason is None else f": {trial.reason}"
        self._write(f"trial {trial.number}: {trial.state}{score}{why}")

    def repeats(self, number: int, lost: int) -> None:
        """Write which trial is done again."""
        self._write(f"trial {number} repeats trial {lost}, whose process is gone")

    def warned(self, text: str) -> None:
        """Write the warning."""
        self._write(f"warning: {text}")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
