"""t tests over seeds, planned and anytime, the paired comparison of two methods, and corrections for several tests.

Correlations on resampled sentence pairs are in `registry.statistics`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from operator import mul
from statistics import correlation, fmean, stdev

from pydantic import BaseModel

from cse_cli.core.identity import Mode

LEVEL = 0.05
"""Level of all tests of one output together."""
POWER = 0.8
MOST_SEEDS = 10_000
ROUNDING = 1e-9
"""Relative difference of equal scores, from rounding in the last bits."""
SCALE = 3.0
"""Standard deviation τ of the effects μ/σ that the anytime test of two methods expects.

Its power, averaged over effects d_z from 0.5 to 3 and 3 to 30 seeds, is highest near τ = 1.6. τ = 3 loses 1.2 points.
It is as good as any up to 10 seeds, and the smallest whole number with which 3 seeds can show a difference at all
(1 + 3 τ² > 1 / 0.05).
"""
NUMBER_SCALE = 6.0
"""The same for the test against one reported number, which can only find effects of several σ.

Its power, averaged over effects from 1 to 8 and 3 to 30 seeds, is highest near τ = 4. τ = 6 loses 0.3 points. It is the
best up to 10 seeds, and 3 seeds can show a difference (1 + 3/4 τ² > 1 / 0.05).
"""


@dataclass(frozen=True)
class Design:
    """A t test of a mean difference μ between normal scores with the standard deviation σ.

    Without a plan of the seeds, the test is the right-Haar mixture e-process, with a normal mixture of mean 0 and
    standard deviation τ over the effect μ / σ. It is the Bayes factor of the t statistics. Under μ = 0 these have the
    same distribution for every σ (and for every common mean, if one is estimated), so that E is a nonnegative
    martingale with mean 1 for the data after each new seed:

        E = K^(−1/2) · [(1 + t²/ν) / (1 + t²/(ν · K))]^((ν + 1)/2),   K = 1 + m · τ²

    with ν degrees of freedom and effective size m. By Ville's inequality E ever reaches 1/α with probability at most α.
    So p = min(1, 1/E) holds for every reason to add seeds or to stop, and it depends on the set of seeds only. The
    interval has the values of μ that the test does not reject. It is unbounded if even an infinite t rejects nothing.

    Source: Wang and Ramdas (2025), "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
    variance"; Rouder et al. (2009), Psychonomic Bulletin & Review 16, for the closed form.

    Args:
        freedom: Degrees of freedom ν of the estimate of σ.
        size: Effective size m: t is the estimate of μ/σ times √m.
        scale: Standard deviation τ of the effects that the e-process expects.
    """

    freedom: int
    size: float
    scale: float = SCALE

    @property
    def k(self) -> float:
        """Variance of √m · μ/σ plus noise under the mixture."""
        return 1 + self.size * self.scale**2

    def log_e(self, t: float) -> float:
        """Return the logarithm of the e-value."""
        x = t * t / self.freedom
        return (self.freedom + 1) / 2 * (math.log1p(x) - math.log1p(x / self.k)) - math.log(self.k) / 2

    def p(self, t: float, mode: Mode) -> float | None:
        """Return the two-sided p-value of μ = 0, or None if the test waits for planned seeds."""
        if mode == "incomplete":
            return None
        if mode == "anytime":
            return math.exp(-max(0.0, self.log_e(t)))
        from scipy.special import stdtr  # a third of a second to import

        return float(2 * stdtr(self.freedom, -abs(t)))

    def critical(self, level: float, mode: Mode) -> float:
        """Return the |t| from which the test rejects μ = 0 at a level. It is infinite if no |t| is large enough."""
        if mode == "incomplete" or level == 0:
            return math.inf
        if mode != "anytime":
            from scipy.special import stdtrit

            return float(-stdtrit(self.freedom, level / 2))
        a = math.exp((math.log(self.k) - 2 * math.log(level)) / (self.freedom + 1))
        return math.sqrt(self.freedom * (a - 1) / (1 - a / self.k)) if a < self.k else math.inf

    def power(self, effect: float, level: float, mode: Mode) -> float:
        """Return the probability that the test at this size finds a true effect μ/σ in its direction."""
        from scipy.special import nctdtr

        limit = self.critical(level, mode)
        return 1 - float(nctdtr(self.freedom, abs(effect) * math.sqrt(self.size), limit)) if limit < math.inf else 0.0


def paired(n: int) -> Design:
    """Return the test of n differences, two methods with the same seed in each."""
    return Design(n - 1, n)


def beside_number(n: int) -> Design:
    """Return the test of n seeds against one reported number: is it one more run of the same method?

    The number is the only observation of the other method, so the effective size 1 / (1 + 1/n) stays below 1, and only
    the n seeds estimate σ. The number came first: the e-process starts with it, and each seed adds one factor.
    """
    return Design(n - 1, n / (n + 1), NUMBER_SCALE)


def seeds_needed(effect: float, level: float = LEVEL, mode: Mode = "planned") -> int | None:
    """Return the fewest seeds with which the paired test finds an effect, in σ, with the probability `POWER`.

    More than `MOST_SEEDS` are one above it. None: there is no effect or no test. Without a plan, it is the probability
    that the test rejects with exactly these seeds.
    """
    if effect == 0 or level == 0 or mode == "incomplete":
        return None
    return 2 + bisect_left(range(2, MOST_SEEDS + 1), POWER, key=lambda n: paired(n).power(effect, level, mode))


class Paired(BaseModel, frozen=True):
    """One metric of two methods with the same seeds. All differences are the second minus the first.

    Args:
        std: Sample standard deviation of the differences. None with one seed.
        t: Student's t of the differences with n − 1 degrees of freedom. None with one seed, and if every seed has the
            same difference: then there is no sample.
        p: Two-sided p-value of this metric for a planned number of seeds. `p_anytime` is that for any number.
        p_adjusted: p-value of the mode, corrected for metrics and comparisons. None if the metric is not tested.
        level: Level of the test of this metric and of its interval, after the correction. None without a test.
        low: Lower end of the confidence interval of the mean difference. None if it is unbounded, and without a test.
        seeds_needed: Number of seeds with which the test in this mode finds a difference of this size in 80 % of tries.
            One more than `MOST_SEEDS` means more than those.
    """

    seeds: tuple[int, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    difference: float
    std: float | None = None
    t: float | None = None
    p: float | None = None
    p_anytime: float | None = None
    mode: Mode = "anytime"
    p_adjusted: float | None = None
    level: float | None = None
    low: float | None = None
    high: float | None = None
    seeds_needed: int | None = None

    @property
    def constant(self) -> bool:
        """Whether several seeds all have the same difference."""
        return len(self.seeds) > 1 and self.t is None

    def p_in(self, mode: Mode) -> float | None:
        """Return the p-value of this metric in a mode. While a test waits for seeds it is 1, which rejects nothing."""
        if self.constant:
            return None
        if mode == "incomplete" or self.t is None:
            return 1.0
        return self.p_anytime if mode == "anytime" else self.p

    def judged(self, mode: Mode, p_adjusted: float | None, level: float, needed_level: float | None = None) -> Paired:
        """Return the comparison with the interval and the seeds needed that belong to a test."""
        if self.t is None or self.std is None:
            return self.model_copy(update={"mode": mode})
        n = len(self.seeds)
        reach = paired(n).critical(level, mode) * self.std / math.sqrt(n)
        low, high = (self.difference - reach, self.difference + reach) if reach < math.inf else (None, None)
        future = level if needed_level is None else needed_level
        needed = seeds_needed(self.difference / self.std, future, mode)
        update = {
            "mode": mode, "p_adjusted": p_adjusted, "level": level or None, "low": low, "high": high,
            "seeds_needed": needed,
        }  # fmt: skip
        return self.model_copy(update=update)


def compare_paired(
    seeds: Sequence[int], first: Sequence[float], second: Sequence[float], mode: Mode = "anytime"
) -> Paired:
    """Return the paired comparison of scores that belong together by position, without corrections."""
    differences = [after - before for before, after in zip(first, second, strict=True)]
    plain = Paired(
        seeds=tuple(seeds), first=tuple(first), second=tuple(second), difference=fmean(differences), mode=mode,
    )  # fmt: skip
    if (n := len(differences)) < 2:
        return plain
    rounding = ROUNDING * max(1.0, *map(abs, (*first, *second)))
    if max(differences) - min(differences) <= rounding:
        same = 0.0 if abs(plain.difference) <= rounding else plain.difference
        return plain.model_copy(update={"std": 0.0, "difference": same})
    spread, test = stdev(differences), paired(n)
    t = plain.difference / spread * math.sqrt(n)
    update = {"std": spread, "t": t, "p": test.p(t, "planned"), "p_anytime": test.p(t, "anytime")}
    found = plain.model_copy(update=update)
    return found.judged(mode, None if mode == "incomplete" else found.p_in(mode), LEVEL)


@dataclass(frozen=True)
class Corrected:
    """Result of one hypothesis among several.

    Args:
        p: Adjusted p-value. It is below `LEVEL` exactly if the hypothesis is rejected.
        level: Level at which the hypothesis was rejected, or at which it is tested when nothing more can be rejected.
            For a hypothesis that waits for the first of its family, the level that it would get first.
        tested: Whether the hypothesis is tested. If it is, the unadjusted p-value is below `level` exactly if the
            hypothesis is rejected, so an interval at this level excludes 0 exactly then.
    """

    p: float
    level: float
    tested: bool


def judge_together(families: Sequence[Sequence[float | None]]) -> list[list[Corrected | None]]:
    """Return p-values and levels that are corrected for all hypotheses of all families. None has no effect.

    A family has the metrics of a comparison, or the cells of a row, the primary one first.
    Each family has an equal share of the level. Its first hypothesis is tested first. If it is rejected, the others are
    tested by Holm's procedure. A family in which all are rejected leaves its share to the others. The probability of
    any false rejection is at most the level, for any set of true hypotheses and however they depend on each
    other. With families of one hypothesis this is Holm's procedure, and so is a family whose first has no p-value.

    Source: Bretz, Maurer, Brannath and Posch (2009), Statistics in Medicine 28, Algorithm 1 and its adjusted p-values;
    Holm (1979), Scandinavian Journal of Statistics 6.
    """
    corrected: list[list[Corrected | None]] = [[None] * len(family) for family in families]
    left = [{place: p for place, p in enumerate(family) if p is not None} for family in families]
    final: dict[tuple[int, int], tuple[float, bool]] = {}
    reached = 0.0
    while open_ := [number for number, family in enumerate(left) if family]:
        levels = {(number, place): one for number in open_ for place, one in _levels(left[number], len(open_)).items()}
        tested = [key for key, (_, tests) in levels.items() if tests]
        smallest, number, place = min((left[n][i] * LEVEL / levels[n, i][0], n, i) for n, i in tested)
        reached = max(reached, min(1.0, smallest))
        if reached >= LEVEL and not final:  # nothing more is rejected
            final = levels
        level, is_tested = final.get((number, place), levels[number, place])
        corrected[number][place] = Corrected(reached, level, is_tested)
        del left[number][place]
    return corrected


def _levels(family: Mapping[int, float], families: int) -> dict[int, tuple[float, bool]]:
    """Return place → level, and whether it is tested now, of the hypotheses of one family that are not rejected yet."""
    share = LEVEL / families
    if 0 not in family:
        return dict.fromkeys(family, (share / len(family), True))
    others = dict.fromkeys((place for place in family if place != 0), (share / max(1, len(family) - 1), False))
    return {0: (share, True), **others}


def correct_together(families: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Return the adjusted p-values of `judge_together`."""
    return [[None if one is None else one.p for one in family] for family in judge_together(families)]


def correct_named(values: Mapping[str, float | None], primary: str) -> dict[str, float | None]:
    """Return the p-values of one family by name, corrected together. The primary one may be at any place."""
    names = [primary, *(name for name in values if name != primary)]
    (family,) = correct_together([[values.get(name) for name in names]])
    corrected = dict(zip(names, family, strict=True))
    return {name: corrected[name] for name in values}


class Trend(BaseModel, frozen=True):
    """Rank correlation of measured with reported cells.

    Args:
        along: Reported column, or reported row of a table with one row.
        rho: Spearman's rank correlation. None if one side is constant.
        p: Two-sided p-value.
        n: Number of cells that both have.
        exact: Whether `p` counts all orders. If not, it is Student's approximation.
    """

    along: str
    rho: float | None
    p: float | None
    n: int
    exact: bool


EXACT = 8
"""Largest number of cells for which all orders are counted: 40,320 of them."""


def trend(along: str, measured: Sequence[float], reported: Sequence[float]) -> Trend | None:
    """Return Spearman's correlation of measured with reported cells, with mean ranks for ties. None: below three."""
    n = len(measured)
    if n < 3:
        return None
    if len(set(measured)) == 1 or len(set(reported)) == 1:
        return Trend(along=along, rho=None, p=None, n=n, exact=True)
    a, b = _ranks(measured), _ranks(reported)
    rho = correlation(a, b)
    if n > EXACT:
        t = rho * math.sqrt((n - 2) / (1 - rho * rho)) if abs(rho) < 1 else math.inf
        return Trend(along=along, rho=rho, p=Design(n - 2, 1).p(t, "planned"), n=n, exact=False)
    extreme = abs(sum(map(mul, a, b))) - 1e-9
    sums = [abs(sum(map(mul, order, b))) >= extreme for order in permutations(a)]
    return Trend(along=along, rho=rho, p=fmean(sums), n=n, exact=True)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks minus their mean."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - len(values)) / 2 for value in values]


def p_text(p: float) -> str:
    """Return "p = 0.031", or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seeds_text(n: int) -> str:
    """Return the seeds needed, marked as an estimate from few seeds."""
    return f"more than {MOST_SEEDS:,}" if n > MOST_SEEDS else f"about {n:,}"
