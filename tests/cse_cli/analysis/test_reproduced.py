"""The verdict: interval, error rates, power and missing seeds. The position of seeds in a published distribution."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from cse_cli.analysis import reproduced
from cse_cli.analysis.papers import judging_column, reported_row, table_of
from cse_cli.analysis.reproduced import TOLERANCE, Claim, Spread, compare_with_reproductions, position, verdict_text
from cse_cli.analysis.score_table import measure
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.jobs.screen import print_results
from cse_cli.recipe.load import load
from registry import papers
from registry.papers import Reproduction
from tests.cse_cli.analysis.leaderboard_runs import IFCL, measured, result

SIMCSE = 0.84
"""Standard deviation of simple-simcse's 50 seeds."""
VALUES = [75.0, 75.8, 74.6, 75.4, 75.1]


def judge(values, claim, spread=None, *, tolerance=TOLERANCE, trained=True):
    claim = claim.model_copy(update={"others": spread, "tolerance": tolerance})
    return reproduced.judge(measure(values), claim, trained=trained)


def claimed(value: float, **about) -> Claim:
    return Claim(heading="avg", value=value, **about)


def others(n: int = 50, std: float = SIMCSE) -> Spread:
    return Spread(n, std, "published")


# The interval, computed with scipy's distributions instead of its special functions.


def test_interval_of_seeds_without_published_runs():
    found = judge(VALUES, claimed(75.5))
    spread, mean = np.std(VALUES, ddof=1), np.mean(VALUES)
    low, high = stats.t.interval(0.95, 4, loc=mean, scale=spread * math.sqrt(1 + 1 / 5))
    assert (found.low, found.high) == pytest.approx((low - 0.01, high + 0.01))
    assert (found.outcome, found.freedom, found.pooled) == ("reproduced", 4, False)


def test_published_runs_are_pooled_by_their_variance():
    found = judge(VALUES[:3], claimed(75.5), others(12, 0.9))
    pooled = math.sqrt((2 * np.var(VALUES[:3], ddof=1) + 11 * 0.9**2) / 13)
    low, high = stats.t.interval(0.95, 13, loc=np.mean(VALUES[:3]), scale=pooled * math.sqrt(1 + 1 / 3))
    assert (found.sigma, found.freedom, found.pooled) == (pytest.approx(pooled), 13, True)
    assert stats.t.ppf(0.975, 13) * pooled / math.sqrt(3) > TOLERANCE
    low, high = stats.t.interval(0.99, 13, loc=np.mean(VALUES[:3]), scale=pooled * math.sqrt(1 + 1 / 3))
    assert (found.low, found.high) == pytest.approx((low - 0.01, high + 0.01))


@pytest.mark.parametrize(("runs", "best"), [(12, False), (5, True)])
def test_interval_of_a_mean_and_of_the_best(runs, best):
    found = judge(VALUES, claimed(75.5, digits=1, runs=runs, best=best))
    scale = np.std(VALUES, ddof=1) * math.sqrt((1 if best else 1 / runs) + 1 / 5)
    low = np.mean(VALUES) - stats.t.ppf(0.975, 4) * scale - 0.1
    high = np.mean(VALUES) + stats.t.ppf(1 - 0.025 / (runs if best else 1), 4) * scale + 0.1
    assert (found.low, found.high) == pytest.approx((low, high))


@pytest.mark.parametrize(("difference", "outcome"), [(2.3, "lower"), (-2.3, "higher"), (1.3, "reproduced")])
def test_lower_means_that_your_scores_are_below_the_reported_number(difference, outcome):
    assert judge(VALUES, claimed(fmean(VALUES) + difference), others()).outcome == outcome


# Too few seeds.


def test_few_seeds_decide_only_a_large_difference_at_the_smaller_level():
    found = judge([75.0], claimed(10.0))
    assert (found.outcome, found.sigma, found.low, found.more_seeds) == ("undecided", None, None, 4)
    reach = stats.t.ppf(0.995, 49) * SIMCSE * math.sqrt(2)
    assert judge([75.0], claimed(75.0 + reach + 0.02), others()).outcome == "lower"
    assert judge([75.0], claimed(75.0 + reach), others()).outcome == "undecided"
    found = judge([75.0, 75.01, 75.02], claimed(75.01))
    assert (found.outcome, found.level, found.more_seeds) == ("undecided", 0.01, 2)
    assert judge([75.0, 75.01, 75.02], claimed(79.0)).outcome == "lower"


@pytest.mark.parametrize("published", [None, others()])
def test_the_seeds_that_are_missing_follow_from_the_t_distribution(published):
    values = [74.0, 76.0]
    found = judge(values, claimed(75.5), published)
    freedom = 1 if published is None else 50
    first = next(
        n
        for n in range(3, 1000)
        if freedom + n - 2 >= 4 and stats.t.ppf(0.975, freedom + n - 2) * found.sigma / math.sqrt(n) <= 1
    )
    assert (found.outcome, found.more_seeds) == ("undecided", first - 2)


# Published runs that do not fit, and recipes without training.


@pytest.mark.parametrize(("scale", "pooled"), [(1.0, True), (12.0, False), (0.01, False)])
def test_published_runs_with_another_variance_are_not_pooled(scale, pooled):
    values = [75 + scale * (value - 75) for value in VALUES]
    found = judge(values, claimed(75.0), others(50, 0.5))
    ratio = np.var(values, ddof=1) / 0.25
    p = 2 * min(stats.f.cdf(ratio, 4, 49), stats.f.sf(ratio, 4, 49))
    assert bool(p >= 0.01) == pooled
    assert found.pooled is pooled
    assert found.freedom == (53 if pooled else 4)


@pytest.mark.parametrize(("value", "outcome"), [(56.70, "reproduced"), (56.71, "reproduced"), (56.72, "lower")])
def test_without_training_only_rounding_differs(value, outcome):
    found = judge([56.703], claimed(value), trained=False)
    assert (found.outcome, found.more_seeds, found.freedom) == (outcome, 0, None)


# Error rates and power.


def outcomes(
    draws: int, seeds: int, published: int, difference: float, *, sigma: float = SIMCSE, runs: int = 1,
    tolerance: float = 1.0, best: bool = False, until_decided: bool = False,
) -> Counter[str]:  # fmt: skip
    """Return how often each verdict occurs if the reported runs score `difference` more than yours."""
    rng = random.Random(f"{seeds} {published} {difference}")
    found: Counter[str] = Counter()
    for _ in range(draws):
        spread = others(published, stdev(rng.gauss(0, sigma) for _ in range(published))) if published else None
        reported = [rng.gauss(difference, sigma) for _ in range(runs)]
        claim = claimed(max(reported) if best else fmean(reported), runs=runs, best=best)
        values = [rng.gauss(0, sigma) for _ in range(seeds)]
        verdict = judge(values, claim, spread, tolerance=tolerance)
        while until_decided and verdict.outcome == "undecided":
            values += [rng.gauss(0, sigma) for _ in range(verdict.more_seeds)]
            verdict = judge(values, claim, spread, tolerance=tolerance)
        found[verdict.outcome] += 1
    return found


@pytest.mark.parametrize(("seeds", "published"), [(5, 0), (3, 50)])
@pytest.mark.slow
def test_a_number_of_the_same_distribution_is_reproduced(seeds, published):
    """You add the seeds that the verdict names until it is decided."""
    found = outcomes(4000, seeds, published, 0.0, until_decided=True)
    assert found["reproduced"] / 4000 >= 0.94, found
    assert found["undecided"] == 0


@pytest.mark.slow
def test_a_mean_and_the_best_of_the_same_distribution_are_reproduced():
    mean = outcomes(1000, 3, 12, 0.0, runs=12, tolerance=2.1, until_decided=True)
    best = outcomes(1000, 5, 50, 0.0, runs=5, best=True, until_decided=True)
    assert min(mean["reproduced"], best["reproduced"]) / 1000 >= 0.94, (mean, best)


@pytest.mark.parametrize(("seeds", "published", "difference", "least"), [(5, 50, 4.0, 0.97), (10, 0, 3.0, 0.80)])
@pytest.mark.slow
def test_power_against_a_number_that_is_higher(seeds, published, difference, least):
    found = outcomes(500, seeds, published, difference)
    assert found["lower"] / 500 >= least, found
    assert found["higher"] == 0
    assert outcomes(500, seeds, published, -difference)["higher"] / 500 >= least
    twelve = outcomes(500, 3, 12, 2.0, sigma=0.93, runs=12, tolerance=2.1)  # as the small recipes: two points
    assert twelve["lower"] / 500 >= 0.8, twelve


# The sentence, and where it is shown.


@pytest.mark.parametrize(
    ("values", "claim", "parts"),
    [
        (VALUES, claimed(75.5), ["reproduced: avg 75.18 ± 0.45 over 5 seeds, reported 75.50.", "73.80 to 76.56"]),
        (VALUES, claimed(79, digits=0), ["lower: ", "reported 79.", "95 % prediction", "0.45 of your 5 seeds."]),
        ([75.0], claimed(75.5), ["not decided yet (4 more seeds)", "One seed has no standard deviation"]),
        ([75.0], claimed(75.5, others=others()), ["0.84 of your 1 seed and 50 published runs (published)"]),
        (VALUES, claimed(75.5, runs=5, best=True), ["Expected for the best of 5 runs: "]),
        (VALUES, claimed(75.5, others=others(50, 9.0)), ["50 published runs (published) have another variance"]),
        ([0.0, 1000.0], claimed(500.0), ["more than 10,000 more seeds"]),
    ],
)
def test_the_sentence(values, claim, parts):
    text = verdict_text(reproduced.judge(measure(values), claim), claim)
    assert all(part in text for part in parts), text


@pytest.mark.slow
def test_the_leaderboard_has_the_verdict_on_the_row_that_runs_reproduce():
    runs = [result(seed, 76.0 + seed / 10) for seed in range(5)]
    row = reported_row(IFCL)
    claim = reproduced.claim_of(row, judging_column(table_of(row)), "ifcl_en")
    text = verdict_text(reproduced.judge(measure([76.0 + seed / 10 for seed in range(5)]), claim), claim)
    assert (claim.heading, claim.value, text[:7]) == ("Avg", 77.8, "lower: ")
    for query in ({}, {"table": "ifcl/1"}):
        (shown,) = measured(runs, **query)
        assert shown.notes[-1] == f"IFCL-BERT base: {text}"
    for status in ("changed", "other_model"):
        assert not any("lower" in note for one in measured(runs, status) for note in one.notes)
    without = [one.model_copy(update={"scores": {task: one.scores[task] for task in STS_TASKS[:2]}}) for one in runs]
    assert not any("lower" in note for one in measured(without) for note in one.notes)


MEANS = dict(zip(STS_TASKS, (67.64, 80.42, 72.68, 80.25, 78.12, 76.28, 70.35), strict=True))
"""The published mean of each task over the 50 seeds; their average is 75.11."""


def known(values: tuple[float, ...] = (), **changes: object) -> Reproduction:
    plain = {"recipe": "r", "paper": "R", "source": "s", "low": 1.0, "high": 20.0, "mean": 10.5, "n": 20}
    return Reproduction(**{**plain, "values": values, **changes})


def run(seed: int, gain: float = 0.0, **changes: object) -> Result:
    scores = {task: {"spearman": value + gain} for task, value in MEANS.items()}
    plain = {"recipe": "simcse_en", "recipe_hash": load("simcse_en").recipe.hash(), "scores": scores, "paper": None}
    return result(seed, **{**plain, **changes})


TWENTY = known(tuple(float(value) for value in range(1, 21)))
THREE = known((1.0, 2.0, 3.0), low=1.0, high=3.0, mean=2.0, n=3)


@pytest.mark.parametrize(
    ("value", "distribution", "words"),
    [
        (5.5, TWENTY, "25th percentile"),  # 5 of 20 below
        (5.0, TWENTY, "22nd percentile"),  # 4 below and one equal: 4.5 / 20 = 22.5 %
        (1.0, TWENTY, "2nd percentile"),  # the lowest itself: 0.5 / 20
        (20.004, TWENTY, "98th percentile"),  # printed with two decimals, so it is the highest
        (0.99, TWENTY, "below all 20"),
        (20.01, TWENTY, "above all 20"),
        (1.0, known(), "within their range"),  # without values, only the range is known
        (2.5, THREE, "above 2 of 3"),
    ],
)
def test_the_position_of_a_score(value, distribution, words):
    assert position(value, distribution) == words


def test_each_seed_of_the_unchanged_recipe_is_placed():
    values = papers.distribution("simcse_en").values
    below = sum(value < 75.41 for value in values)
    assert compare_with_reproductions([run(3, 0.3), run(0)]) == [
        "50 independent runs of SimCSE, unsupervised, BERT base: avg 73.16 to 76.70, mean 75.11 ± 0.84 "
        "(hppRC/simple-simcse)",
        "seed 0: avg 75.11, 50th percentile; every task within its range",
        f"seed 3: avg 75.41, {2 * below}th percentile; every task within its range",
    ]


def test_tasks_outside_their_range_are_named_and_a_missing_task_leaves_no_average():
    scores = {**{task: {"spearman": value} for task, value in MEANS.items()}, "sickr": {"spearman": 72.004}}
    (about, line) = compare_with_reproductions([run(1, scores=scores)], notes=True)
    assert line == "seed 1: avg 75.34, 58th percentile; sickr 72.00, above all 50"  # 29 of 50 are lower
    assert "STS-B dev looked at every 250 steps" in about
    scores = {"stsb": {"spearman": 73.0}}
    assert compare_with_reproductions([run(1, scores=scores)])[1:] == ["seed 1: stsb 73.00, below all 50"]
    assert compare_with_reproductions([run(1, scores={"other": {"spearman": 73.0}})]) == []


def test_other_recipes_and_a_single_published_run_are_not_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed = load("simcse_en", ["train.batch_size=32"]).recipe.hash()
    assert papers.distribution("bert_avg_en_block").n == 1
    own = load("bert_avg_en_block").recipe.hash()
    others = {"recipe_hash": changed}, {"recipe": "mini/simcse_en"}, {"recipe": "bert_avg_en_block", "recipe_hash": own}
    assert [compare_with_reproductions([run(0, **other)]) for other in others] == [[], [], []]
    mine = tmp_path / "recipes" / "simcse_en.toml"  # a file of the same name is not the recipe
    mine.parent.mkdir()
    mine.write_text('extends = "simcse_en"\n[train]\nbatch_size = 32\n')
    shipped = run(1)
    monkeypatch.chdir(tmp_path)
    assert compare_with_reproductions([run(0, recipe_hash=load("simcse_en").recipe.hash())]) == []
    assert len(compare_with_reproductions([shipped])) == 2


def test_it_stands_below_the_table(capsys):
    print_results([run(seed) for seed in range(2)])
    lines = capsys.readouterr().out.rstrip().split("\n")
    starts = [line.split(":")[0] for line in lines[-3:]]
    assert starts == ["50 independent runs of SimCSE, unsupervised, BERT base", "seed 0", "seed 1"]
