"""Whether scores differ by more than chance: one score over seeds, two methods with the same seeds, two correlations.

Correlations on resampled sentence pairs are in `registry.statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, ConfigDict
from scipy import stats
from scipy.special import ndtr, stdtr

LEVEL = 0.05
"""Of every test; intervals have 95 %."""
POWER = 0.8
MOST_SEEDS = 10_000
_ENUMERATED = 15
"""Differences up to which all their signs are tried: 2¹⁵ of them."""
ROUNDING = 1e-9
"""Part of a score by which equal ones may differ, in the last bits."""
SMALLEST = 4
"""Pairs below which neither test of two correlations has a degree of freedom."""

FIRST_LOOK = 3
"""Seeds from which on there is a verdict, where their number was not planned."""

Mark = Literal["within", "above", "below", "incomparable", "single seed", "test-selected", "stale", "doubtful"]
SYMBOLS: dict[Mark, str] = {
    "within": "≈",
    "above": "▲",
    "below": "▼",
    "incomparable": "≠",
    "single seed": "¹",
    "test-selected": "‡",
    "stale": "†",
    "doubtful": "?",
}
"""The mark beside a number or its difference. Only above and below mean that there is a difference."""
LEGEND: dict[Mark, str] = {
    "within": "within the spread of the seeds: no difference shown (t test, 95 %, corrected for looks and cells)",
    "above": "above the spread: a difference that the seeds do not explain",
    "below": "below the spread: a difference that the seeds do not explain",
    "incomparable": "not the quantity that is printed (metric, split, aggregate or N): never compared",
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
        p: Two-sided, of no difference from the reference; None where nothing is tested. Corrected for looks
            and, once the row is complete, for its cells.
        significant: Whether the difference is larger than the seeds' spread explains; never without a p-value.
        comparable: Whether the printed number is the same quantity as ours: metric, split, aggregate and N.
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
    p: float | None = None
    significant: bool = False
    comparable: bool = True
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
        other = self.difference is not None and not self.comparable
        doubts = {"incomparable": other, "test-selected": test_selected, "stale": stale, "single seed": self.n == 1}
        marks: list[Mark] = [mark for mark in SYMBOLS if doubts.get(mark, False)]
        if not marks and self.p is not None and self.difference is not None:
            marks = [("above" if self.difference > 0 else "below") if self.significant else "within"]
        significant = self.significant and not (stale or test_selected or other)
        return self.model_copy(update={"marks": tuple(marks), "significant": significant})

    def with_p(self, p: float | None) -> Score:
        """Return it with another p-value, and with the significance that this leaves."""
        return self.model_copy(update={"p": p, "significant": p is not None and p < LEVEL})


def p_at_any_look(p: float, n: int) -> float:
    """Return the p-value of n seeds that holds although seeds may be added until it is small: min(1, (n + 1) · p).

    A t-test at 5 % after every new seed rejects equality far more often than in 5 % of tries. Here n seeds are tested
    at 5 % / (n + 1), which is an alpha-spending rule without a last look: for normal differences, looked at with every
    number of seeds from 3 on, 4.2 % of equal methods are ever called different up to 30 seeds, 4.6 % up to 100
    (`benchmarks/false_positives.py`). Nothing is assumed of when was looked, or why a seed was added.

    Source: Lan and DeMets (1983), Biometrika 70, for the spending of a level; the rule and its rates are ours.

    Args:
        p: Of the t-test with n seeds alone, two-sided.
        n: Seeds; below `FIRST_LOOK` nothing is tested, and 1 is returned.
    """
    return 1.0 if n < FIRST_LOOK else min(1.0, (n + 1) * p)


def looks_text(n: int, *, planned: bool = False) -> str:
    """Return how often may have been looked for the p-value of n seeds to hold."""
    if planned:
        return "one planned look"
    if n < FIRST_LOOK:
        return f"tested from {FIRST_LOOK} on"
    looks = n - FIRST_LOOK + 1
    return f"up to {looks} looks" if looks > 1 else "first look"


def score_against_number(values: Sequence[float], printed: float | None, *, planned: bool = False) -> Score:
    """Compare our seeds with one printed number: is it outside the range in which one more run of ours would fall?

    Args:
        values: Of each seed.
        printed: The number.
        planned: Whether the number of seeds was fixed before the first look; else seeds may have been added after.
    """
    n = len(values)
    return _score(values, printed, spread=math.sqrt(1 + 1 / n), differences=values, planned=planned)


def score_against_untrained(values: Sequence[float], before: Sequence[float]) -> Score:
    """Compare our seeds with their own untrained encoders, seed by seed."""
    gains = [after - start for after, start in zip(values, before, strict=True)]
    return _score(values, fmean(before), spread=math.sqrt(1 / len(values)), differences=gains)


def _score(
    values: Sequence[float],
    reference: float | None,
    spread: float,
    differences: Sequence[float],
    *,
    planned: bool = False,
) -> Score:
    n, mean = len(values), fmean(values)
    p = None
    if n > 1 and reference is not None:
        rounding = ROUNDING * max(1.0, abs(mean))
        if (error := stdev(differences) * spread) > rounding:
            p = float(2 * stdtr(n - 1, -abs(mean - reference) / error))
        else:
            p = float(abs(mean - reference) <= rounding)
        p = p if planned else p_at_any_look(p, n)
    std = stdev(values) if n > 1 else None
    return Score(mean=mean, std=std, n=n, reference=reference, p=p, significant=p is not None and p < LEVEL)


def score_alone(values: Sequence[float]) -> Score:
    """Compare our seeds with nothing."""
    return _score(values, None, 1.0, values)


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
        p: Two-sided, of this metric by itself in one planned look.
        p_adjusted: The same corrected for looks, metrics and comparisons, where that has been done; see `multiple`.
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


def compare_paired(seeds: Sequence[int], first: Sequence[float], second: Sequence[float]) -> Paired:
    """Return the paired comparison of scores that belong together by position."""
    differences = [after - before for before, after in zip(first, second, strict=True)]
    plain = Paired(
        seeds=tuple(seeds), first=tuple(first), second=tuple(second), difference=fmean(differences),
    )  # fmt: skip
    if len(differences) < 2:
        return plain
    rounding = ROUNDING * max(1.0, *map(abs, (*first, *second)))
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
    # Beyond 30 SciPy's noncentral t is NaN; the power is 1 long before.
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


@dataclass(frozen=True)
class Dependent:
    """A test of r12 = r13.

    Args:
        statistic: Positive where r12 is the larger.
        p: Two-sided.
    """

    statistic: float
    p: float


def williams(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Williams' t with n − 3 degrees of freedom, which Steiger recommends; None below four observations.

        t = (r12 − r13) · √[ (n − 1)(1 + r23) / (2 · (n − 1)/(n − 3) · |R| + r̄² · (1 − r23)³) ]
        |R| = 1 − r12² − r13² − r23² + 2 · r12 · r13 · r23,   r̄ = (r12 + r13) / 2

    Source: Williams (1959), Regression Analysis, Steiger (1980), Psychological Bulletin 87, page 246.
    Made for product moments of normal variables. For Spearman's ρ it is an approximation; its false positives are
    measured by `tests/cse_cli/core/test_correlated.py`.

    Args:
        r12: Correlation of gold scores with the first method's.
        r13: Of gold scores with the second method's.
        r23: Of the two methods' scores with each other.
        n: Observations.
    """
    if n < SMALLEST:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    mean = (r12 + r13) / 2
    spread = 2 * (n - 1) / (n - 3) * determinant + mean**2 * (1 - r23) ** 3
    if spread == 0:
        return None
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / spread)
    return Dependent(t, float(2 * stdtr(n - 3, -abs(t))))


def steiger(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Steiger's Z of the Fisher-transformed correlations, pooled; None where it has no value.

        Z = (z12 − z13) · √(n − 3) / √(2 − 2s),   z = artanh r
        s = [ r23 · (1 − 2r̄²) − ½ · r̄² · (1 − 2r̄² − r23²) ] / (1 − r̄²)²,   r̄ = (r12 + r13) / 2

    Source: Dunn and Clark (1969); Steiger (1980), Psychological Bulletin 87, page 247: the mean of the two in s.
    """
    mean = (r12 + r13) / 2
    if n < SMALLEST or max(abs(r12), abs(r13)) >= 1:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    shared = r23 * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - r23**2) / 2
    spread = 2 - 2 * shared / (1 - mean**2) ** 2
    if spread <= 0:
        return None
    z = (math.atanh(r12) - math.atanh(r13)) * math.sqrt((n - 3) / spread)
    return Dependent(z, float(2 * ndtr(-abs(z))))
