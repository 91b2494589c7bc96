"""Paired tests over seeds: values by hand, published power, what a few seeds cannot say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cse_cli.core.stats import LEVEL, MOST_SEEDS, compare_paired, paired, seeds_needed


def test_values_by_hand():
    # differences 1, 2, 3: mean 2, std 1, t = 2 / (1/√3) = 3.4641, t(0.975; 2) = 4.30265, p = 0.0742
    found = compare_paired([3, 5, 7], [10.0, 20.0, 30.0], [11.0, 22.0, 33.0], "planned")
    assert (found.difference, found.std) == (2.0, 1.0)
    assert found.t == pytest.approx(2 * math.sqrt(3))
    assert found.p == pytest.approx(0.07418, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-4)
    assert found.seeds == (3, 5, 7)


def test_one_seed_has_no_spread():
    found = compare_paired([0], [1.0], [2.0])
    assert found.p_in("anytime") == 1.0
    assert (found.difference, found.std, found.p, found.seeds_needed) == (1.0, None, None, None)
    assert not found.constant


def test_the_same_difference_with_every_seed_is_no_sample():
    found = compare_paired([0, 1, 2], [60.1, 60.2, 60.3], [60.4, 60.5, 60.6])
    assert found.constant
    assert (found.std, found.p, found.t) == (0.0, None, None)
    assert found.difference == pytest.approx(0.3)


def test_rounding_in_the_last_bits_is_no_difference():
    assert compare_paired([0, 1], [0.1 + 0.2, 0.3], [0.3, 0.3]).difference == 0.0


@pytest.mark.parametrize(
    # G*Power 3.1, matched pairs, two-sided, α = 0.05, power 0.80
    ("effect", "n"),
    [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (-0.5, 34)],
)
def test_seeds_needed_as_published(effect, n):
    assert seeds_needed(effect) == n
    assert paired(n).power(effect, LEVEL, "planned") >= 0.8 > paired(n - 1).power(effect, LEVEL, "planned")


@pytest.mark.parametrize(("effect", "needed"), [(0.0, None), (1e-4, MOST_SEEDS + 1), (5.0, 3), (30.0, 2), (100.0, 2)])
def test_seeds_needed_at_the_ends(effect, needed):
    assert seeds_needed(effect) == needed


def test_the_anytime_test_needs_more_seeds_than_a_planned_one():
    values = {level: seeds_needed(0.96, level, "anytime") for level in (0.05, 0.005)}
    assert seeds_needed(0.96) == 11
    assert 20 < values[0.05] < values[0.005]
    rng = np.random.default_rng(3)
    drawn = rng.normal(0.96, 1.0, (4_000, values[0.05]))
    t = drawn.mean(1) / drawn.std(1, ddof=1) * math.sqrt(values[0.05])
    found = np.mean(t >= paired(values[0.05]).critical(0.05, "anytime"))
    assert found == pytest.approx(0.8, abs=0.03)  # 4,000 tries at 80 % have a standard error of 0.6 points
    assert seeds_needed(0.96, mode="incomplete") is None


def test_the_seeds_needed_are_those_of_the_level_and_of_the_mode():
    values = [0.1, 0.5, 0.9, 0.3, 0.4]
    found = compare_paired(range(5), [0.0] * 5, values, "planned")
    strict, waiting = found.judged("planned", 0.1, 0.01), found.judged("anytime", 0.1, 0.0, 0.05)
    assert strict.seeds_needed == seeds_needed(found.difference / found.std, 0.01) > found.seeds_needed
    assert strict.high - strict.low > found.high - found.low
    assert (waiting.low, waiting.high) == (None, None)
    assert waiting.seeds_needed == seeds_needed(found.difference / found.std, 0.05, "anytime")
