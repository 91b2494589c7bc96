"""Of equal methods at most 5 % seem different, within the error of the simulation, and corrections by hand."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from scipy import stats

from benchmarks.false_positives import (
    EVERY,
    best_of,
    compared,
    limits,
    looked,
    metrics,
    p_value,
    rows,
    running,
    separate,
    shows,
)
from cse_cli.analysis.compare import Comparison, MetricComparison, judge
from cse_cli.analysis.score_table import Score, correct_row, measure
from cse_cli.core.identity import Mode
from cse_cli.core.plans import SeedPlan
from cse_cli.core.stats import LEVEL, beside_number, compare_paired, correct_named, correct_together, judge_together

pytestmark = pytest.mark.slow

MOST = 0.06


def rng() -> np.random.Generator:
    return np.random.default_rng(17)


@pytest.mark.parametrize(
    ("comparisons", "rule", "looks"), [(1, "planned", [5]), (3, "planned", [5]), (3, "anytime", [3, 5, 10])]
)
def test_outputs_about_equal_methods(comparisons, rule, looks):
    # 2,500 outputs at 5 % have a standard error of 0.4 points.
    assert 0 < compared(2500, comparisons, rule, looks, rng()).share <= MOST


@pytest.mark.parametrize("seeds", [3, 5])
def test_rows_of_the_leaderboard(seeds):
    assert 0.04 < rows(10_000, "planned", [seeds], rng()).share <= MOST


def test_seeds_added_while_looking():
    anytime, naive = looked(40_000, [[("anytime", EVERY)], [("planned", EVERY)]], rng())
    assert 0.01 < anytime.share <= LEVEL
    assert naive.share > 0.25


def test_a_plan_given_anew_is_no_plan():
    (assumed,) = looked(40_000, [[("planned", [n]) for n in (3, 5, 10)]], rng())
    assert 0.11 < assumed.share < 0.14


def test_the_best_by_dev_is_tested_on_new_seeds_only():
    found = best_of(200, 5, rng())
    before, today, new = found["the untrained encoder"]
    assert 0.08 < before.share < 0.24
    assert today.share == 0
    assert new.n > 15
    assert new.share < 0.25  # three standard errors above 5 %
    before, today, _ = found["a reported number"]
    assert (0.02 < before.share < 0.13, today.share) == (True, 0)


@pytest.mark.parametrize("what", ["method", "metric"])
def test_separate_commands_have_a_level_each(what):
    assert 0.12 < separate(1500, what, rng()).share < 0.25


def test_one_planned_test_is_exact():
    # The p of one look is uniform if nothing differs: 4,000 of them by Kolmogorov and Smirnov.
    t = running(rng().standard_normal((4_000, 5)))[:, -1]
    assert stats.kstest([p_value(one, 5, "planned") for one in t.tolist()], "uniform").pvalue > 0.01


def made(second: str, first_scores: np.ndarray, second_scores: np.ndarray, rule: Mode) -> Comparison:
    """Return a comparison as `cse compare` makes it from (seeds, metrics) scores, before corrections."""
    over = [
        compare_paired(range(len(a)), a.tolist(), b.tolist(), rule)
        for a, b in zip(first_scores.T, second_scores.T, strict=True)
    ]
    found = tuple(
        MetricComparison(metric=f"m{place}", more_is_better=True, over_seeds=one) for place, one in enumerate(over)
    )
    seeds = tuple(range(len(first_scores)))
    return Comparison(first="A", second=second, seeds=seeds, left_out={}, mode=rule, primary="m0", metrics=found)


@pytest.mark.parametrize("rule", ["planned", "anytime"])
def test_the_simulation_decides_as_the_command_does(rule):
    decisions = set()
    for number in range(40):
        scores = metrics(np.random.default_rng(number), 8, 3) + np.array([0, 0.9, 1.4])[:, None]
        comparisons = [made(letter, scores[:, 0], scores[:, k], rule) for k, letter in ((1, "B"), (2, "C"))]
        judged = judge(comparisons, [SeedPlan(rule)] * 2, {"A": "a", "B": "b", "C": "c"})
        found = any(one.finding == "different" for comparison in judged for one in comparison.metrics)
        t = running((scores[:, 1:] - scores[:, :1])[None])[0, -1]
        assert found == shows(t, 8, rule)
        decisions.add(found)
    assert decisions == {True, False}


def test_the_simulation_has_the_p_values_of_the_program():
    drawn = metrics(rng(), 3, 5)
    for one, t, beside in zip(drawn, running(drawn)[:, -1], running(drawn[:, :4], drawn[:, 4])[:, -1], strict=True):
        for metric in range(one.shape[1]):
            found = compare_paired(range(5), [0.0] * 5, one[:, metric].tolist())
            assert p_value(t[metric], 5, "planned") == pytest.approx(found.p, rel=1e-9)
            assert p_value(t[metric], 5, "anytime") == pytest.approx(found.p_anytime, rel=1e-9)
            score = measure(one[:4, metric].tolist(), Score(mean=float(one[4, metric])), "planned")
            assert p_value(beside[metric], 4, "planned", beside_number) == pytest.approx(score.p, rel=1e-9)
    assert (abs(limits("p × (n + 1)", [5])) > limits("planned", [5])).all()


# The corrections, by hand.


def test_families_of_one_are_corrected_by_holm():
    # sorted 0.005·4, 0.01·3, 0.03·2, 0.04·1 → 0.02, 0.03, 0.06, max(0.06, 0.04)
    found = correct_together([[0.01], [0.04], [0.03], [0.005]])
    assert [p for (p,) in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_together([[0.5], [0.9]]) == [[1.0], [1.0]]
    assert correct_together([[0.03]]) == [[0.03]]
    assert correct_together([]) == []


def test_the_others_are_tested_where_the_primary_one_is_rejected():
    # primary 0.02; then Holm: 0.004·3, max(0.01·2, 0.012), 0.5, none below the primary's
    assert correct_together([[0.02, 0.5, 0.004, 0.01]]) == [pytest.approx([0.02, 0.5, 0.02, 0.02])]
    assert correct_together([[0.06, 0.001, 0.002]]) == [[0.06, 0.06, 0.06]]
    assert correct_together([[0.001, 0.02, 0.03]]) == [pytest.approx([0.001, 0.04, 0.04])]


def test_comparisons_share_the_level_and_inherit_it():
    # Two comparisons of two metrics, half the level each. The first: 0.01·2, then 0.015·2; all rejected, it leaves its
    # half to the second, whose primary is then tested alone: 0.04, its other metric 0.045.
    assert correct_together([[0.01, 0.015], [0.04, 0.045]]) == [
        pytest.approx([0.02, 0.03]),
        pytest.approx([0.04, 0.045]),
    ]
    # Where the first keeps an equality, the second has its half alone.
    assert correct_together([[0.01, 0.5], [0.04, 0.045]])[1] == pytest.approx([0.08, 0.09])


def test_what_has_no_p_counts_for_nothing():
    assert correct_together([[None, 0.01, 0.02], [None]]) == [[None, 0.02, 0.02], [None]]
    assert correct_named({"a": 0.01, "b": 0.03, "c": None}, "b") == {"b": 0.03, "a": 0.03, "c": None}
    assert correct_named({"a": 0.01, "b": 0.03}, "not here") == {"a": 0.02, "b": 0.03}


def test_levels_by_hand():
    # Primary at 5 %, then two others at 2.5 %: the smaller one is rejected there, the last one at 5 %.
    assert levels([[0.001, 0.02, 0.03]]) == [[(0.05, True), (0.025, True), (0.05, True)]]
    # Nothing is rejected in the first family, so the others wait; the second one keeps its half.
    halves = [[(0.025, True), (0.0125, False), (0.0125, False)], [(0.025, True), (0.025, True)]]
    assert levels([[0.06, 0.02, 0.03], [0.001, 0.5]]) == halves
    # The first family leaves its half to the second.
    assert levels([[0.01, 0.015], [0.04, 0.045]]) == [[(0.025, True)] * 2, [(0.05, True)] * 2]
    assert levels([[None, 0.2, 0.2]]) == [[None, (0.025, True), (0.025, True)]]


def levels(families):
    return [[None if one is None else (one.level, one.tested) for one in family] for family in judge_together(families)]


@pytest.mark.parametrize("seed", range(20))
def test_p_is_below_its_level_exactly_if_it_is_rejected(seed):
    drawn = np.random.default_rng(seed)
    families = [(drawn.uniform(0, 1, drawn.integers(1, 6)) ** 4).tolist() for _ in range(drawn.integers(1, 5))]
    found = judge_together(families)
    for family, corrected in zip(families, found, strict=True):
        for p, one in zip(family, corrected, strict=True):
            assert (one.tested and p < one.level) == (one.p < LEVEL)
    assert correct_together(families) == [[one.p for one in family] for family in found]


@pytest.mark.parametrize("seed", range(30))
def test_an_interval_excludes_0_exactly_if_its_test_rejects(seed):
    drawn = np.random.default_rng(seed)
    mode = ("planned", "anytime")[seed % 2]
    n, gaps = int(drawn.integers(3, 20)), drawn.uniform(0, 2, (3, 4))
    over = [
        [compare_paired(range(n), [0.0] * n, drawn.normal(gap, 1, n).tolist(), mode) for gap in family]
        for family in gaps
    ]
    found = judge_together([[one.p_in(mode) for one in family] for family in over])
    for one, test in zip(chain(*over), chain(*found), strict=True):
        judged = one.judged(mode, test.p, test.level if test.tested else 0.0)
        excludes = judged.low is not None and not judged.low <= 0 <= judged.high
        assert excludes == (test.p < LEVEL)


def test_a_row_loses_the_marks_that_the_correction_takes_back():
    near = measure([1.0, 1.1, 1.2, 1.1, 1.1], Score(mean=1.1), "planned")
    far = measure([1.0, 1.1, 1.2, 1.1, 1.1], Score(mean=3.0), "planned")
    assert (near.significant, far.significant) == (False, True)
    assert not correct_row({"avg": near, "other": far}, "avg")["other"].significant
    assert correct_row({"avg": far, "other": far}, "avg")["other"].significant
