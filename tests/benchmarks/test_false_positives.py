"""Of equal methods at most 6 % seem different where 5 % should: tables, rows, seeds added while looking."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.false_positives import (
    beside_printed,
    compared,
    looked,
    looked_at_tables,
    metrics,
    others,
    rows,
    running_p,
    t_test,
)
from cse_cli.core.multiple import correct_named, correct_row, correct_together
from cse_cli.core.stats import LEVEL, compare_paired, looks_text, p_at_any_look, score_against_number

MOST = 0.06


def rng() -> np.random.Generator:
    return np.random.default_rng(17)


@pytest.mark.parametrize("methods", [1, 3])
def test_tables_of_equal_methods(methods):
    # 3,000 tables at 5 % have a standard error of 0.4 points.
    rate = compared(rng(), 3000, 5, 0.3, methods)
    assert rate.now <= MOST
    assert rate.before > 0.2


def test_tables_that_are_printed_again_with_more_seeds():
    rate = looked_at_tables(rng(), 2000, 0.3)
    assert rate.now <= MOST
    assert rate.before > 0.4


def test_other_metrics_where_the_primary_one_does_differ():
    assert others(rng(), 3000, 5, 0.3).now <= MOST


@pytest.mark.parametrize("seeds", [3, 5])
def test_rows_of_the_leaderboard(seeds):
    rate = rows(rng(), 3000, seeds, 0.3, planned=True)
    assert rate.now <= MOST
    assert rate.before > 0.2


def test_seeds_added_while_looking():
    p = running_p(rng(), 40_000, 30)
    for looks in ((3, 5, 10), range(3, 11), range(3, 31)):
        rate = looked(p, looks, "")
        assert rate.now <= LEVEL
        assert rate.before > 0.11


def test_one_look_is_exact():
    # The p of one look is uniform where nothing differs: 40,000 of them by Kolmogorov and Smirnov.
    p = running_p(rng(), 40_000, 5)
    assert stats.kstest(p[:, -1], "uniform").pvalue > 0.01


def test_the_simulation_tests_as_the_program_does():
    drawn = metrics(rng(), 3, 5, 0.3)
    for one, p in zip(drawn, t_test(drawn), strict=True):
        for metric in range(one.shape[1]):
            assert compare_paired(range(5), [0.0] * 5, one[:, metric].tolist()).p == pytest.approx(p[metric], rel=1e-9)
    beside = beside_printed(drawn[:, :4], drawn[:, 4])
    for one, p in zip(drawn, beside, strict=True):
        for metric in range(one.shape[1]):
            score = score_against_number(one[:4, metric].tolist(), float(one[4, metric]), planned=True)
            assert score.p == pytest.approx(p[metric], rel=1e-9)


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


def test_a_row_loses_the_marks_that_the_correction_takes_back():
    near = score_against_number([1.0, 1.1, 1.2, 1.1, 1.1], 1.1, planned=True)
    far = score_against_number([1.0, 1.1, 1.2, 1.1, 1.1], 3.0, planned=True)
    assert (near.significant, far.significant) == (False, True)
    assert not correct_row({"avg": near, "other": far}, "avg")["other"].significant
    assert correct_row({"avg": far, "other": far}, "avg")["other"].significant


def test_any_look():
    assert p_at_any_look(0.01, 4) == pytest.approx(0.05)
    assert p_at_any_look(0.3, 9) == 1.0
    assert p_at_any_look(1e-9, 2) == 1.0
    assert [looks_text(n) for n in (2, 3, 5)] == ["tested from 3 on", "first look", "up to 3 looks"]
    assert looks_text(5, planned=True) == "one planned look"
