"""The same seeds in both: is the difference larger than the seeds' spread, and how many would show it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy import stats

LEVEL = 0.05
POWER = 0.8
MOST_SEEDS = 10_000
_ENUMERATED = 15
"""Differences up to which all their signs are tried: 2¹⁵ of them."""


class Paired(BaseModel):
    """One metric of two methods with the same seeds; every difference is the second less the first.

    Args:
        seeds: Those that both have.
        first: Score of the first method with each seed.
        second: Of the second method.
        difference: Mean over the seeds.
        std: Sample standard deviation of the differences; None with one seed.
        low: Lower end of the 95 % confidence interval of the mean difference, by Student's t.
        high: Its upper end.
        t: Student's t of the paired test, n − 1 degrees of freedom; None with one seed, or where every seed gives the
            same difference, which is no sample of anything.
        p: Two-sided.
        p_adjusted: The same after Holm's correction for the comparisons of this metric made together.
        wilcoxon_p: Of the signed-rank test, exact.
        wilcoxon_smallest: The smallest that many seeds can give.
        effect_size: Cohen's d_z: mean difference over its standard deviation.
        seeds_needed: Seeds with which the paired t-test finds a difference of this size four times in five; one more
            than `MOST_SEEDS` stands for more than those.
    """

    model_config = ConfigDict(frozen=True)

    seeds: tuple[int, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    difference: float
    std: float | None = None
    low: float | None = None
    high: float | None = None
    t: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    wilcoxon_p: float | None = None
    wilcoxon_smallest: float | None = None
    effect_size: float | None = None
    seeds_needed: int | None = None

    @property
    def constant(self) -> bool:
        """Whether several seeds all give the same difference."""
        return len(self.seeds) > 1 and self.t is None


def paired(seeds: Sequence[int], first: Sequence[float], second: Sequence[float]) -> Paired:
    """Return the paired comparison of scores that belong together by position."""
    differences = [after - before for before, after in zip(first, second, strict=True)]
    plain = Paired(
        seeds=tuple(seeds), first=tuple(first), second=tuple(second), difference=fmean(differences),
    )  # fmt: skip
    if len(differences) < 2:
        return plain
    rounding = 1e-9 * max(1.0, *map(abs, (*first, *second)))  # what is equal may differ in the last bits
    if max(differences) - min(differences) <= rounding:
        same = 0.0 if abs(plain.difference) <= rounding else plain.difference
        return plain.model_copy(update={"std": 0.0, "difference": same})
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(1 - LEVEL)
    spread = stdev(differences)
    effect = plain.difference / spread
    return plain.model_copy(
        update={
            "std": spread,
            "low": float(interval.low),
            "high": float(interval.high),
            "t": float(test.statistic),
            "p": float(test.pvalue),
            "p_adjusted": float(test.pvalue),
            "wilcoxon_p": signed_rank(differences),
            "wilcoxon_smallest": 2.0 ** (1 - len(differences)),
            "effect_size": effect,
            "seeds_needed": seeds_needed(effect),
        }
    )


def signed_rank(differences: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test: exact, by its normal approximation for many ties alone.

    Differences of 0 are left out, as Wilcoxon did; where all are, nothing speaks against equality.
    """
    kept = [value for value in differences if value != 0]
    if not kept:
        return 1.0
    method: object = "exact"
    if len(set(map(abs, kept))) < len(kept):  # the table of exact values has no ties
        method = stats.PermutationMethod(n_resamples=2**_ENUMERATED) if len(kept) <= _ENUMERATED else "asymptotic"
    return float(stats.wilcoxon(kept, method=method).pvalue)  # type: ignore[call-overload]


def power(effect: float, n: int) -> float:
    """Return how often n seeds make the two-sided paired t-test significant, for a true effect d_z; n at least 2."""
    limit = float(stats.t.ppf(1 - LEVEL / 2, n - 1))
    # Beyond 30 SciPy's noncentral t gives no number; what is asked is decided long before.
    shift = min(abs(effect) * math.sqrt(n), 30.0)
    return float(stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift))


def seeds_needed(effect: float) -> int | None:
    """Return the fewest seeds whose power reaches `POWER`; one above `MOST_SEEDS` for more, None without an effect."""
    if effect == 0:
        return None
    normal = stats.norm.ppf(1 - LEVEL / 2) + stats.norm.ppf(POWER)
    n = max(2, math.floor((normal / effect) ** 2))  # too few: Student's t asks for more than the normal distribution
    while n <= MOST_SEEDS and power(effect, n) < POWER:
        n += 1
    return min(n, MOST_SEEDS + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down procedure, in the order given."""
    order = np.argsort(values, kind="stable")
    scaled = [values[place] * (len(values) - step) for step, place in enumerate(order)]
    adjusted = np.minimum(1.0, np.maximum.accumulate(scaled))
    found = np.empty(len(values))
    found[order] = adjusted
    return [float(value) for value in found]
