"""The best state so far, by a dev metric: kept on disk beside the checkpoint that knows of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from cse_cli.ranks import from_first
from cse_cli.training import checkpoint
from registry.types import Encoder


@dataclass
class Selection:
    """Which state to keep.

    Args:
        folder: Where states are written, one file a step, so that a checkpoint never refers to a later state.
        step: Step of the best state; None before the first score.
        score: Its score.
        curve: Step → score of the selecting metric.
    """

    folder: Path
    step: int | None = None
    score: float | None = None
    curve: dict[int, float] = field(default_factory=dict)

    def offer(self, step: int, score: float, encoder: Encoder) -> bool:
        """Record a score; keep the state if it is the best. Ties keep the earlier one."""
        self.curve[step] = score
        if math.isnan(score) or (self.score is not None and score <= self.score):
            return False
        self.step, self.score = step, score
        from_first(lambda: checkpoint.write(self._file(step), encoder.state_dict()))
        return True

    def restore(self, encoder: Encoder) -> None:
        """Put the best state into `encoder`; without one, leave it as it is."""
        if self.step is not None:
            file = self._file(self.step)
            encoder.load_state_dict(from_first(lambda: checkpoint.read(file)))

    def tidy(self) -> None:
        """Delete states that no checkpoint can ask for any more."""
        for file in self.folder.glob("best-*.pt"):
            if self.step is None or file != self._file(self.step):
                file.unlink()

    def _file(self, step: int) -> Path:
        return self.folder / f"best-{step}.pt"
