"""How often equal methods seem different: in `cse compare`, in `cse leaderboard`, and where seeds are added.

    python -m benchmarks.false_positives [--tables 5000] [--paths 200000]

Prints a Markdown table: the share of outputs with at least one "better" or "worse", before (every metric tested at 5 %
by itself, as if nothing else were) and now. The methods are equal: their scores, or the differences of their
scores, are normal with the same mean; scores of the seven test sets correlate with each other (ρ), and the primary
metric is their average. Needs neither data nor a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from cse_cli.core.multiple import correct_together
from cse_cli.core.stats import FIRST_LOOK, LEVEL, p_at_any_look

Floats = NDArray[Any]
SETS = 7
"""Test sets; the average makes one metric more."""
SCHEDULE = (3, 5, 10)
"""Numbers of seeds at which is looked, where it is not at every one."""


@dataclass(frozen=True)
class Rate:
    """A share of simulated outputs.

    Args:
        what: Of which.
        before: With every test at 5 % by itself.
        now: As it is tested today.
        n: Outputs.
    """

    what: str
    before: float
    now: float
    n: int

    @staticmethod
    def error(share: float, n: int) -> float:
        """Return the standard error of a share."""
        return sqrt(share * (1 - share) / n)


def t_test(values: Floats) -> Floats:
    """Return the two-sided p of no difference from 0, of the t-test over the second axis."""
    n = values.shape[1]
    t = values.mean(1) / (values.std(1, ddof=1) / sqrt(n))
    return np.asarray(2 * stdtr(n - 1, -np.abs(t)))


def beside_printed(ours: Floats, printed: Floats) -> Floats:
    """Return the two-sided p of one more run of ours being the printed number, as `score_against_number` tests it."""
    n = ours.shape[1]
    t = (ours.mean(1) - printed) / (ours.std(1, ddof=1) * sqrt(1 + 1 / n))
    return np.asarray(2 * stdtr(n - 1, -np.abs(t)))


def metrics(rng: np.random.Generator, outputs: int, seeds: int, correlation: float) -> Floats:
    """Return (outputs, seeds, 1 + SETS) scores: the average, then sets of equal mean that correlate with each other."""
    shared = rng.standard_normal((outputs, seeds, 1))
    own = rng.standard_normal((outputs, seeds, SETS))
    sets = sqrt(correlation) * shared + sqrt(1 - correlation) * own
    return np.concatenate([sets.mean(2, keepdims=True), sets], axis=2)


def different(comparisons: Iterable[Sequence[float]], seeds: int, *, planned: bool) -> bool:
    """Return whether any metric of any comparison is called different; the primary metric comes first."""
    looked = [[p if planned else p_at_any_look(float(p), seeds) for p in of_one] for of_one in comparisons]
    return any(p is not None and p < LEVEL for of_one in correct_together(looked) for p in of_one)


def compared(rng: np.random.Generator, outputs: int, seeds: int, correlation: float, methods: int) -> Rate:
    """Return the rate of `cse compare --planned`: each of some methods with the first, which is equal to them."""
    first = metrics(rng, outputs, seeds, correlation)
    p = np.stack([t_test(metrics(rng, outputs, seeds, correlation) - first) for _ in range(methods)], axis=1)
    now = np.mean([different(one, seeds, planned=True) for one in p])
    what = (
        f"`cse compare`, {seeds} planned seeds, {methods} comparison{'s' if methods > 1 else ''}, ρ = {correlation:g}"
    )
    return Rate(what, float((_holm_each(p) < LEVEL).any((1, 2)).mean()), float(now), outputs)


def _holm_each(p: Floats) -> Floats:
    """Return p corrected for the comparisons of each metric by itself; its smallest one is all that counts."""
    return np.asarray(p * p.shape[1])


def others(rng: np.random.Generator, outputs: int, seeds: int, correlation: float) -> Rate:
    """Return the rate of the metrics besides a primary one that does differ."""
    p = t_test(metrics(rng, outputs, seeds, correlation)[:, :, 1:])
    beside = np.concatenate([np.zeros((outputs, 1)), p], axis=1)
    now = np.mean([sum(p is not None and p < LEVEL for p in correct_together([one.tolist()])[0]) > 1 for one in beside])
    what = f"the sets where the average differs, {seeds} planned seeds, ρ = {correlation:g}"
    return Rate(what, float((p < LEVEL).any(1).mean()), float(now), outputs)


def rows(rng: np.random.Generator, outputs: int, seeds: int, correlation: float, *, planned: bool) -> Rate:
    """Return the rate of the leaderboard's rows: our seeds beside a printed row, one run of the same method."""
    drawn = metrics(rng, outputs, seeds + 1, correlation)
    p = beside_printed(drawn[:, :seeds], drawn[:, seeds])
    now = np.mean([different([one], seeds, planned=planned) for one in p])
    what = f"row of `cse leaderboard`, {seeds} {'planned ' if planned else ''}seeds, ρ = {correlation:g}"
    return Rate(what, float((p < LEVEL).any(1).mean()), float(now), outputs)


def running_p(rng: np.random.Generator, paths: int, most: int) -> Floats:
    """Return (paths, most − FIRST_LOOK + 1) p-values, of the first 3, 4, … differences of equal methods."""
    drawn = rng.standard_normal((paths, most))
    n = np.arange(1, most + 1)
    mean = drawn.cumsum(1) / n
    squares = (drawn**2).cumsum(1) - n * mean**2
    kept = slice(FIRST_LOOK - 1, None)
    n = n[kept]
    t = mean[:, kept] / np.sqrt(squares[:, kept] / (n - 1) / n)
    return np.asarray(2 * stdtr(n - 1, -np.abs(t)))


def looked(p: Floats, looks: Sequence[int], what: str) -> Rate:
    """Return the rate of one metric that is looked at with several numbers of seeds, and called at any of them."""
    seen = p[:, np.asarray(looks) - FIRST_LOOK]
    limits = np.array([LEVEL / (p_at_any_look(1e-9, n) / 1e-9) for n in looks])  # it is proportional to p
    return Rate(what, float((seen < LEVEL).any(1).mean()), float((seen < limits).any(1).mean()), len(p))


def looked_at_tables(rng: np.random.Generator, outputs: int, correlation: float) -> Rate:
    """Return the rate of a table of `cse compare` that is printed again with 3, 5 and 10 seeds."""
    drawn = metrics(rng, outputs, max(SCHEDULE), correlation)
    p = {n: t_test(drawn[:, :n]) for n in SCHEDULE}
    before = np.any([(p[n] < LEVEL).any(1) for n in SCHEDULE], axis=0).mean()
    now = np.mean([any(different([p[n][one]], n, planned=False) for n in SCHEDULE) for one in range(outputs)])
    return Rate(
        f"`cse compare`, looked at with 3, 5 and 10 seeds, ρ = {correlation:g}", float(before), float(now), outputs
    )


def rates(tables: int, paths: int) -> Iterator[Rate]:
    """Yield every rate, with its own random numbers.

    Args:
        tables: Simulated tables and rows of each kind.
        paths: Simulated sequences of seeds.
    """
    made: list[Callable[[np.random.Generator], Rate]] = []
    for correlation in (0.3, 0.6):
        for seeds in SCHEDULE:
            made.append(lambda rng, n=seeds, r=correlation: compared(rng, tables, n, r, methods=1))  # type: ignore[misc]
    made.append(lambda rng: compared(rng, tables, 5, 0.6, methods=3))
    made.append(lambda rng: others(rng, tables, 5, 0.3))
    for correlation in (0.3, 0.6):
        made.append(lambda rng, r=correlation: looked_at_tables(rng, tables, r))  # type: ignore[misc]
    for correlation in (0.3, 0.6):
        for seeds in SCHEDULE:
            made.append(lambda rng, n=seeds, r=correlation: rows(rng, tables, n, r, planned=True))  # type: ignore[misc]
    made.append(lambda rng: rows(rng, tables, 5, 0.6, planned=False))
    for number, make in enumerate(made):
        yield make(np.random.default_rng(number))
    p = running_p(np.random.default_rng(len(made)), paths, 10)
    yield looked(p, SCHEDULE, "one metric, looked at with 3, 5 and 10 seeds")
    yield looked(p, range(3, 11), "one metric, at every number from 3 to 10")
    rng = np.random.default_rng(len(made) + 1)
    p = np.concatenate([running_p(rng, paths // 20, 100) for _ in range(20)])
    for most in (30, 100):
        yield looked(p, range(3, most + 1), f"one metric, at every number from 3 to {most}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=5_000)
    parser.add_argument("--paths", type=int, default=200_000)
    asked = parser.parse_args()
    print("| equal methods | before | now | outputs |\n| --- | ---: | ---: | ---: |")
    for rate in rates(asked.tables, asked.paths):
        shares = (f"{100 * s:.1f} ± {100 * Rate.error(s, rate.n):.1f} %" for s in (rate.before, rate.now))
        print(f"| {rate.what} | {' | '.join(shares)} | {rate.n:,} |", flush=True)


if __name__ == "__main__":
    main()
