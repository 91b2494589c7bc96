"""Verdict on a reported number: is it what further runs of the recipe would score?

The reported number r is one run, the mean of k runs, or the best of k runs. Your n seeds have the mean m. If r comes
from the same normal distribution with the standard deviation σ, then r − m has the variance σ² (1/k + 1/n). With an
estimate s of σ that has ν degrees of freedom, r is in the prediction interval

    m ± t(ν, 1 − α/2) · s · √(1/k + 1/n)

with the probability 1 − α. For the best of k runs, the upper end has the level α / (2k) for a single run, by
Bonferroni's inequality. The interval is wider by one unit of the last reported digit: half of it because the number is
rounded, half because papers round the scores of tasks before they average them.

If others published runs of the same recipe, their variance is pooled with that of your seeds, so that few seeds are
enough. Their mean is not used, because another implementation can have another mean.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, Field

from cse_cli.core.stats import LEVEL, MOST_SEEDS

Outcome = Literal["reproduced", "lower", "higher", "undecided"]
"""Verdict: the reported number is in the interval, your scores are lower, or higher, or there are too few seeds."""

TOLERANCE = 1.0
"""Largest half-width of the 95 % confidence interval of your mean, in points, with which a number counts as reproduced.

A wider one would also accept a method that is one point worse. The gains over SimCSE in IFCL's Table 1 are 0.94 to
1.55 points.
"""
FEWEST_FREEDOM = 4
"""Smallest degrees of freedom of a standard deviation that decides: five seeds, or fewer with published runs.

With three seeds, a standard deviation that is too small by chance would end the search for more seeds too early.
"""
EARLY_LEVEL = 0.01
"""Level of "lower" and "higher" as long as there are too few seeds, so that adding seeds does not add errors."""
UNEQUAL = 0.01
"""Level of the F test for different variances. Then the published runs are not used."""


class Spread(BaseModel, frozen=True):
    """Standard deviation of runs that others published.

    Args:
        n: Number of runs.
        std: Sample standard deviation of their scores.
        source: Name of the publication or of the measurement.
    """

    n: int = Field(ge=2)
    std: float = Field(gt=0, allow_inf_nan=False)
    source: str


class Claim(BaseModel, frozen=True):
    """A reported number.

    Args:
        value: Number.
        digits: Number of reported decimals.
        runs: Number of runs behind it.
        best: Whether it is the best of these runs instead of their mean.
    """

    value: float = Field(allow_inf_nan=False)
    digits: int = Field(2, ge=0, le=6)
    runs: int = Field(1, ge=1)
    best: bool = False

    @property
    def unit(self) -> float:
        """One unit of the last decimal."""
        return float(10**-self.digits)


class Verdict(BaseModel, frozen=True):
    """Verdict, and the numbers that lead to it.

    Args:
        mean: Mean of your seeds.
        std: Sample standard deviation of your seeds. None for one seed.
        n: Number of your seeds.
        sigma: Standard deviation of the interval. None if it is unknown.
        freedom: Degrees of freedom of `sigma`. None without training, where every run has the same score.
        pooled: Whether published runs are part of `sigma`.
        low: Lower end of the interval for the reported number. None without an interval.
        high: Upper end.
        level: Level of the interval.
        precision: Half-width of the 95 % confidence interval of your mean. None if it is unknown.
        tolerance: Largest precision with which a number counts as reproduced.
        more_seeds: Number of additional seeds that are expected to suffice. 0 for a decided verdict. One more than
            `MOST_SEEDS` means more than those.
    """

    outcome: Outcome
    mean: float
    std: float | None
    n: int
    sigma: float | None
    freedom: int | None
    pooled: bool
    low: float | None
    high: float | None
    level: float
    precision: float | None
    tolerance: float
    more_seeds: int

    def is_same(self, other: Verdict) -> bool:
        """Return whether two verdicts are equal, except for the last digits of another machine."""
        pairs = zip(self.model_dump().values(), other.model_dump().values(), strict=True)
        return all(
            math.isclose(one, two, rel_tol=1e-6) if isinstance(one, float) and isinstance(two, float) else one == two
            for one, two in pairs
        )


def judge(
    values: Sequence[float],
    claim: Claim,
    others: Spread | None = None,
    *,
    tolerance: float = TOLERANCE,
    trained: bool = True,
) -> Verdict:
    """Return the verdict on a reported number.

    Args:
        values: Score of each of your seeds.
        claim: Reported number.
        others: Published runs of the same recipe.
        tolerance: Precision of your mean that a verdict requires, in points.
        trained: Whether the recipe trains. If it does not, every run has the same score.
    """
    n, mean, std = len(values), fmean(values), stdev(values) if len(values) > 1 else None
    same = {"mean": mean, "std": std, "n": n, "tolerance": tolerance}
    if not trained:
        low, high = mean - claim.unit, mean + claim.unit
        known = {"sigma": 0.0, "freedom": None, "pooled": False, "level": 0.0, "precision": 0.0, "more_seeds": 0}
        return Verdict(outcome=_position(claim.value, low, high), low=low, high=high, **same, **known)
    sigma, freedom, pooled = _estimate(std, n, others)
    if sigma is None:
        nothing = {"sigma": None, "low": None, "high": None, "precision": None, "level": LEVEL}
        more = FEWEST_FREEDOM + 1 - n
        return Verdict(outcome="undecided", freedom=0, pooled=False, more_seeds=more, **same, **nothing)
    precision = _quantile(LEVEL / 2, freedom) * sigma / math.sqrt(n)
    enough = precision <= tolerance and freedom >= FEWEST_FREEDOM
    level = LEVEL if enough else EARLY_LEVEL
    reach = sigma * math.sqrt((1 if claim.best else 1 / claim.runs) + 1 / n)
    low = mean - _quantile(level / 2, freedom) * reach - claim.unit
    high = mean + _quantile(level / 2 / (claim.runs if claim.best else 1), freedom) * reach + claim.unit
    outcome = _position(claim.value, low, high)
    if outcome == "reproduced" and not enough:
        outcome = "undecided"
    more = _more_seeds(sigma, freedom, n, tolerance) if outcome == "undecided" else 0
    return Verdict(
        outcome=outcome, sigma=sigma, freedom=freedom, pooled=pooled, low=low, high=high, level=level,
        precision=precision, more_seeds=more, **same,
    )  # fmt: skip


def _position(value: float, low: float, high: float) -> Outcome:
    """Return where your scores are, compared with the reported number."""
    return "lower" if value > high else "higher" if value < low else "reproduced"


def _estimate(std: float | None, n: int, others: Spread | None) -> tuple[float | None, int, bool]:
    """Return the estimate of σ, its degrees of freedom, and whether the published runs are part of it."""
    if others is None or (std is not None and _differ(std, n, others)):
        return std, n - 1, False
    freedom = n - 1 + others.n - 1
    squares = (n - 1) * (std or 0.0) ** 2 + (others.n - 1) * others.std**2
    return math.sqrt(squares / freedom), freedom, True


def _differ(std: float, n: int, others: Spread) -> bool:
    """Return whether the F test finds different variances of your seeds and of the published runs."""
    from scipy.special import fdtr, fdtrc

    ratio = (std / others.std) ** 2
    return bool(2 * min(fdtr(n - 1, others.n - 1, ratio), fdtrc(n - 1, others.n - 1, ratio)) < UNEQUAL)


def _quantile(tail: float, freedom: int) -> float:
    """Return the t that is exceeded with the probability `tail`."""
    from scipy.special import stdtrit  # a third of a second to import

    return float(-stdtrit(freedom, tail))


def _more_seeds(sigma: float, freedom: int, n: int, tolerance: float) -> int:
    """Return the fewest additional seeds with which the mean is precise enough, if σ stays the same."""

    def suffices(more: int) -> bool:
        known = freedom + more
        return known >= FEWEST_FREEDOM and _quantile(LEVEL / 2, known) * sigma / math.sqrt(n + more) <= tolerance

    return 1 + bisect_left(range(1, MOST_SEEDS + 1), True, key=suffices)
