"""A score over seeds: mean, spread, and whether it differs from a reference by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from pydantic import BaseModel, ConfigDict
from scipy.special import stdtrit

CONFIDENCE = 0.95


class Score(BaseModel):
    """One cell.

    Args:
        mean: Over the seeds; the printed number in a paper's row.
        std: Sample standard deviation over the seeds; None for a single one.
        n: Seeds behind the mean.
        reference: What it is compared with: the paper's number, or the untrained encoder's.
        significant: Whether the difference is larger than the seeds' spread explains; never with fewer than two.
    """

    model_config = ConfigDict(frozen=True)

    mean: float
    std: float | None = None
    n: int = 1
    reference: float | None = None
    significant: bool = False

    @property
    def difference(self) -> float | None:
        """`mean − reference`."""
        return None if self.reference is None else self.mean - self.reference


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
