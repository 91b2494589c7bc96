"""False positives and power of `cse compare` and `cse leaderboard`, by simulation through their own tests.

    python -m benchmarks.false_positives [--outputs 5000] [--paths 100000] [--only-best]

Prints Markdown tables. A false positive is an output with at least one "better" or "worse" about equal methods. Scores
are normal. An output has eight metrics: seven test sets with correlation ρ = 0.6, and their average, which is the
primary metric. Each comparison is with the same first method. `p × (n + 1)` is the rule that the e-process replaced.
`--only-best` simulates the best of 20 configurations by dev. Dev and test scores of seeds correlate with 0.74, as
those of the 46 trained rows of `studies/open/methods`. The simulation needs neither data nor a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import sqrt
from statistics import fmean
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cse_cli.analysis.compare import compare
from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.leaderboard import chosen_by_dev
from cse_cli.analysis.papers import ScoreColumn, ScoreLayout
from cse_cli.analysis.score_table import Score, correct_row
from cse_cli.analysis.tables import compared_scores
from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import Result, Versions
from cse_cli.core.stats import LEVEL, Design, beside_number, correct_together, paired

Floats = NDArray[Any]
Rule = Literal["planned", "anytime", "p × (n + 1)"]
Part = tuple[Rule, Sequence[int]]
"""Test, and the numbers of seeds at which its result is looked at."""
Reference = Literal["a reported number", "a baseline", "the untrained encoder"]
"""What the best configuration is compared with: by `cse leaderboard`, `cse compare` and `cse leaderboard`."""
CONFIGURATIONS = 20
DEV_AND_TEST = 0.74
"""Correlation of dev and test scores over the seeds of a configuration."""
MADE = datetime(2026, 1, 1, tzinfo=UTC)
VERSIONS = Versions(cse="", python="", torch="", transformers="")
SETS = 7
CORRELATION = 0.6
MOST = 30
"""Seeds of the longest path."""
CHUNK = 500
"""Outputs that are simulated together."""
EVERY = range(3, MOST + 1)
FREE = "every number of seeds from 3 to 30"


@dataclass(frozen=True)
class Rate:
    """Share of simulated outputs with an event."""

    share: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} ± {100 * sqrt(self.share * (1 - self.share) / self.n):.1f} %"


def metrics(rng: np.random.Generator, *shape: int) -> Floats:
    """Return scores of equal methods of a shape, with one more axis: the average, then the test sets."""
    shared, own = rng.standard_normal((*shape, 1)), rng.standard_normal((*shape, SETS))
    sets = sqrt(CORRELATION) * shared + sqrt(1 - CORRELATION) * own
    return np.concatenate([sets.mean(-1, keepdims=True), sets], axis=-1)


def running(values: Floats, printed: Floats | None = None) -> Floats:
    """Return t for the first 1, 2, … seeds of axis 1.

    Args:
        values: (outputs, seeds, …) differences, or scores compared with reported numbers.
        printed: (outputs, …) reported numbers. None tests the mean difference against 0.
    """
    n = np.arange(1, values.shape[1] + 1).reshape(-1, *[1] * (values.ndim - 2))
    mean = values.cumsum(1) / n
    squares = (values**2).cumsum(1) - n * mean**2
    gap, size = (mean, n) if printed is None else (mean - printed[:, None], n / (n + 1))
    with np.errstate(invalid="ignore", divide="ignore"):  # one seed has no standard deviation
        return np.asarray(gap / np.sqrt(squares / (n - 1)) * np.sqrt(size))


def p_value(t: float, n: int, rule: Rule, design: Callable[[int], Design] = paired) -> float:
    """Return the p-value of one hypothesis with n seeds."""
    if rule == "p × (n + 1)":
        return min(1.0, (n + 1) * (design(n).p(t, "planned") or 0.0))
    return design(n).p(t, rule) or 0.0


def shows(t: Floats, n: int, rule: Rule, design: Callable[[int], Design] = paired) -> bool:
    """Return whether an output with n seeds shows any difference.

    Args:
        t: (comparisons, metrics) t statistics, the primary metric first.
        n: Number of seeds.
        rule: Test.
        design: Test with a number of seeds.
    """
    # Nothing is rejected before one primary metric is, and that needs a p-value below its share of the level.
    if min(p_value(one, n, rule, design) for one in t[:, 0].tolist()) * len(t) >= LEVEL:
        return False
    p = [[p_value(one, n, rule, design) for one in of_comparison] for of_comparison in t.tolist()]
    return any(one is not None and one < LEVEL for family in correct_together(p) for one in family)


def compared(outputs: int, comparisons: int, rule: Rule, looks: Sequence[int], rng: np.random.Generator) -> Rate:
    """Return how often one of several looks at an output of `cse compare` shows a difference."""
    hits = 0
    for _ in range(outputs // CHUNK):
        drawn = metrics(rng, CHUNK, max(looks), comparisons + 1)
        t = running(drawn[:, :, 1:] - drawn[:, :, :1])
        hits += sum(any(shows(one[n - 1], n, rule) for n in looks) for one in t)
    return Rate(hits / outputs, outputs)


def rows(outputs: int, rule: Rule, looks: Sequence[int], rng: np.random.Generator) -> Rate:
    """Return the same for a row of `cse leaderboard`: your seeds and a reported row, one run of the same method."""
    drawn = metrics(rng, outputs, max(looks) + 1)
    t = running(drawn[:, 1:], drawn[:, 0])
    hits = sum(any(shows(one[None, n - 1], n, rule, beside_number) for n in looks) for one in t)
    return Rate(hits / outputs, outputs)


def separate(outputs: int, what: Literal["method", "metric"], rng: np.random.Generator) -> Rate:
    """Return how often one of 5 commands with 5 planned seeds shows a difference, each corrected separately."""
    hits = 0
    for _ in range(outputs // CHUNK):
        drawn = metrics(rng, CHUNK, 5, 6)
        t = running(drawn[:, :, 1:] - drawn[:, :, :1])[:, -1]
        families = [t[:, k : k + 1] if what == "method" else t[:, :1, k + 1 : k + 2] for k in range(5)]
        hits += sum(any(shows(family[one], 5, "planned") for family in families) for one in range(CHUNK))
    return Rate(hits / outputs, outputs)


def limits(rule: Rule, numbers: Sequence[int], level: float = LEVEL) -> Floats:
    """Return the |t| from which a hypothesis is rejected, for each number of seeds."""
    if rule == "p × (n + 1)":
        return np.array([paired(n).critical(level / (n + 1), "planned") for n in numbers])
    return np.array([paired(n).critical(level, rule) for n in numbers])


def looked(
    paths: int, tests: Sequence[Sequence[Part]], rng: np.random.Generator, effect: float = 0.0, level: float = LEVEL
) -> list[Rate]:
    """Return for each test how often it calls one metric different at any look of any of its parts."""
    hits, chunks = np.zeros(len(tests)), max(1, paths // 5_000)
    for _ in range(chunks):
        t = np.abs(running(rng.standard_normal((5_000, MOST)) + effect))
        for place, parts in enumerate(tests):
            seen = [(t[:, np.asarray(numbers) - 1] >= limits(rule, numbers, level)).any(1) for rule, numbers in parts]
            hits[place] += np.any(seen, axis=0).sum()
    return [Rate(float(one) / (5_000 * chunks), 5_000 * chunks) for one in hits]


def planned(settings: str, first_seed: int, scores: Floats, made: datetime) -> Experiment:
    """Return the experiment of (seeds, 2) dev and test scores, whose seeds were planned at a time."""
    plan = Plan(seeds=tuple(range(first_seed, first_seed + len(scores))), made=made)
    shared: dict[str, Any] = {
        "identity": Identity(settings=settings), "plan": plan, "started": made, "finished": made + timedelta(hours=1),
        "metric_for_best_model": "dev.spearman", "untrained": {"test": {"spearman": 0.0}}, "recipe": "simulated",
        "title": "", "steps": 1, "language": "en", "model": "", "device": "", "precision": "", "versions": VERSIONS,
    }  # fmt: skip
    results = (
        Result.model_construct(seed=seed, scores={"dev": {"spearman": dev}, "test": {"spearman": test}}, **shared)
        for seed, (dev, test) in zip(plan.seeds, scores.tolist(), strict=True)
    )
    return Experiment(tuple(results), name=settings, letter=settings)


def seems_different(best: Experiment, reference: Reference, baseline: Floats) -> bool:
    """Return whether the program calls the best configuration different. `baseline` are scores of an equal method."""
    layout = ScoreLayout((ScoreColumn("test", "test", "spearman"),), "test")
    if reference == "a baseline":
        plan = best.results[0].plan
        assert plan is not None
        first = planned("baseline", best.seeds[0], baseline, plan.made)
        (found,) = compare([first, best], ["test.spearman"], resamples=0).comparisons
        return found.main.finding == "different"
    number = Score(mean=float(baseline[0, 1]), digits=9)
    reported = {"test": number} if reference == "a reported number" else None
    scores = correct_row(compared_scores(best, layout.columns, reported, only_judging=True), layout.ranking)
    return bool({"above", "below"} & {*scores["test"].marked().marks})


def best_of(outputs: int, seeds: int, rng: np.random.Generator) -> dict[Reference, tuple[Rate, Rate, Rate]]:
    """Return how often the best of equal configurations by dev seems different on test, for each reference.

    The first rate is that of the seeds that chose it, the second that of the program with these seeds. The third is
    that of the program after as many seeds that were planned after the choice, if it is still the best.
    """
    hits: dict[Reference, list[list[bool]]] = {one: [[], [], []] for one in get_args(Reference)}
    mixing = np.linalg.cholesky(np.array([[1, DEV_AND_TEST], [DEV_AND_TEST, 1]])).T
    for _ in range(outputs):
        baseline, new, *drawn = rng.standard_normal((CONFIGURATIONS + 2, seeds, 2)) @ mixing
        tried = [planned(str(number), 0, scores, MADE) for number, scores in enumerate(drawn)]
        (best,) = chosen_by_dev(tried, every=False)
        later = planned(best.name, seeds, new, MADE + timedelta(days=1)).results
        tried = [replace(one, results=one.results + later) if one.name == best.name else one for one in tried]
        (again,) = chosen_by_dev(tried, every=False)
        for reference, (before, now, fresh) in hits.items():
            before.append(seems_different(replace(best, fresh=True), reference, baseline))
            now.append(seems_different(best, reference, baseline))
            if again.fresh:
                fresh.append(seems_different(again, reference, baseline))
    return {
        reference: tuple(Rate(fmean(each), len(each)) for each in of_reference)  # type: ignore[misc]
        for reference, of_reference in hits.items()
    }


def false_positives(outputs: int, paths: int) -> Iterator[tuple[str, Rate | None, Rate]]:
    """Yield a description, the rate of p × (n + 1) if it applies, and the rate of today's tests."""
    seeds = iter(np.random.SeedSequence(14).spawn(100))

    def rng() -> np.random.Generator:
        return np.random.default_rng(next(seeds))

    for comparisons in (1, 3, 20):
        many = f"{comparisons} comparison{'s' if comparisons > 1 else ''}"
        for n in (3, 5, 10, 30):
            new = compared(outputs, comparisons, "planned", [n], rng())
            yield f"`cse compare`, {n} planned seeds, {many}", None, new
        old, new = (compared(outputs, comparisons, rule, EVERY, rng()) for rule in ("p × (n + 1)", "anytime"))
        yield f"`cse compare` without a plan, {FREE}, {many}", old, new
    for n in (3, 5, 10):
        yield f"row of `cse leaderboard`, {n} planned seeds", None, rows(outputs, "planned", [n], rng())
    old, new = (rows(outputs, rule, EVERY, rng()) for rule in ("p × (n + 1)", "anytime"))
    yield f"row of `cse leaderboard` without a plan, {FREE}", old, new
    old, new = looked(paths, [[("p × (n + 1)", EVERY)], [("anytime", EVERY)]], rng())
    yield f"one metric without a plan, {FREE}", old, new
    more = range(6, MOST + 1)
    old, new = looked(paths, [[("planned", [5]), ("p × (n + 1)", more)], [("planned", [5]), ("anytime", more)]], rng())
    yield "one metric, a plan of 5 extended up to 30 seeds, and both verdicts counted", old, new
    (new,) = looked(paths, [[("planned", [n]) for n in (3, 5, 10)]], rng())
    yield "one metric, `--planned` repeated with 3, 5 and 10 seeds", None, new
    for what in ("method", "metric"):
        yield f"5 separate commands, 5 planned seeds, each with another {what}", None, separate(outputs, what, rng())


def power(
    paths: int, comparisons: int, effects: Sequence[float], seeds: Sequence[int]
) -> Iterator[tuple[str, list[Rate]]]:
    """Yield an effect d_z with a number of seeds, and the power for one metric of the only comparison that differs.

    The rates are those of a plan, of p × (n + 1) and of the anytime test with exactly this number of seeds, and of the
    latter two at any look with at least 3 and at most this number.
    """
    for effect in effects:
        tests: list[list[Part]] = []
        for n in seeds:
            looks = range(3, n + 1)
            tests += [[("planned", [n])], [("p × (n + 1)", [n])], [("anytime", [n])]]
            tests += [[("p × (n + 1)", looks)], [("anytime", looks)]]
        rates = looked(paths, tests, np.random.default_rng(int(10 * effect)), effect, LEVEL / comparisons)
        for place, n in enumerate(seeds):
            yield f"{comparisons} | {effect:g} | {n}", rates[5 * place : 5 * place + 5]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=int, default=5_000)
    parser.add_argument("--paths", type=int, default=100_000)
    parser.add_argument("--only-best", action="store_true")
    options = parser.parse_args()
    if options.only_best:
        print(f"| best of {CONFIGURATIONS} by dev, 5 seeds, next to | before | today | new seeds | outputs |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for reference, rates in best_of(options.outputs, 5, np.random.default_rng(14)).items():
            print(f"| {reference} | {' | '.join(map(str, rates))} | {options.outputs:,} |")
        return
    print("| equal methods | p × (n + 1) | today | outputs |\n| --- | ---: | ---: | ---: |")
    for what, before, now in false_positives(options.outputs, options.paths):
        print(f"| {what} | {before or ''} | {now} | {now.n:,} |", flush=True)
    print("\n| comparisons | d | seeds | plan | p × (n + 1) | anytime | p × (n + 1), any look | anytime, any look |")
    print("| ---: " * 8 + "|")
    for comparisons in (1, 20):
        for what, rates in power(options.paths, comparisons, (0.5, 1.0, 2.0, 3.0), (3, 5, 10, 20, 30)):
            print(f"| {what} | {' | '.join(f'{100 * rate.share:.0f} %' for rate in rates)} |", flush=True)


if __name__ == "__main__":
    main()
