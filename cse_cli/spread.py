"""A score over seeds: mean, spread, and whether it differs from a reference by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, ConfigDict
from scipy.special import stdtrit

CONFIDENCE = 0.95

Mark = Literal["within", "above", "below", "single seed", "test-selected", "stale", "doubtful"]
SYMBOLS: dict[Mark, str] = {
    "within": "≈",
    "above": "▲",
    "below": "▼",
    "single seed": "¹",
    "test-selected": "‡",
    "stale": "†",
    "doubtful": "?",
}
"""What stands beside a number. Only above and below say that there is a difference."""
LEGEND: dict[Mark, str] = {
    "within": "within the spread of the seeds: no difference shown (t test, 95 %)",
    "above": "above the spread: a difference that the seeds do not explain",
    "below": "below the spread: a difference that the seeds do not explain",
    "single seed": "a single seed: no spread is known, so nothing can be said of a difference",
    "test-selected": "state chosen on a test split: optimistic, never compared",
    "stale": "not the recipe as its file stands today: changed since, or run with --set; never compared",
    "doubtful": "doubtful as printed: see the note",
}


class Score(BaseModel):
    """One cell.

    Args:
        mean: Over the seeds; the printed number in a paper's row.
        std: Sample standard deviation over the seeds; None for a single one. In a paper's row, as printed.
        n: Seeds behind the mean.
        reference: What it is compared with: the paper's number, or the untrained encoder's.
        significant: Whether the difference is larger than the seeds' spread explains; never with fewer than two.
        marks: What a reader must know of it before comparing.
        implied: The value that the rest of the paper implies where the printed one is a misprint.
        low: Smallest known value, of a distribution measured by others.
        high: Largest.
        digits: Decimals it is shown with.
    """

    model_config = ConfigDict(frozen=True)

    mean: float
    std: float | None = None
    n: int = 1
    reference: float | None = None
    significant: bool = False
    marks: tuple[Mark, ...] = ()
    implied: float | None = None
    low: float | None = None
    high: float | None = None
    digits: int = 2

    @property
    def difference(self) -> float | None:
        """`mean − reference`."""
        return None if self.reference is None else self.mean - self.reference

    @property
    def symbols(self) -> str:
        """Its marks, one character each."""
        return "".join(SYMBOLS[mark] for mark in self.marks)

    def marked(self, *, stale: bool = False, test_selected: bool = False) -> Score:
        """Return it with the marks of one of our cells; a doubt takes the significance away."""
        doubts = {"test-selected": test_selected, "stale": stale, "single seed": self.n == 1}
        marks: list[Mark] = [mark for mark in SYMBOLS if doubts.get(mark, False)]
        if not marks and self.difference is not None:
            marks = [("above" if self.difference > 0 else "below") if self.significant else "within"]
        significant = self.significant and not (stale or test_selected)
        return self.model_copy(update={"marks": tuple(marks), "significant": significant})


def beside_one_run(values: Sequence[float], printed: float | None) -> Score:
    """Compare our seeds with one printed number: is it outside the range in which one more run of ours would fall?"""
    n = len(values)
    return _score(values, printed, spread=math.sqrt(1 + 1 / n), differences=values)


def beside_untrained(values: Sequence[float], before: Sequence[float]) -> Score:
    """Compare our seeds with their own untrained encoders, seed by seed."""
    gains = [after - start for after, start in zip(values, before, strict=True)]
    return _score(values, fmean(before), spread=math.sqrt(1 / len(values)), differences=gains)


def _score(values: Sequence[float], reference: float | None, spread: float, differences: Sequence[float]) -> Score:
    n, mean = len(values), fmean(values)
    significant = False
    if n > 1 and reference is not None:
        limit = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * stdev(differences) * spread
        significant = abs(mean - reference) > limit
    return Score(mean=mean, std=stdev(values) if n > 1 else None, n=n, reference=reference, significant=significant)


def alone(values: Sequence[float]) -> Score:
    """Compare our seeds with nothing."""
    return _score(values, None, 1.0, values)
