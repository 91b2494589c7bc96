"""Paired tests over seeds: values by hand, published power, what a few seeds cannot say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from cse_cli.analysis.score_table import Score, measure
from cse_cli.core.stats import (
    LEVEL,
    MOST_SEEDS,
    NUMBER_SCALE,
    Design,
    beside_number,
    compare_paired,
    paired,
    seeds_needed,
)


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


# The anytime-valid t test: its closed form, its interval, and its false positives at every look.


def bayes_factor(t: float, design: Design) -> float:
    """Return the ratio of the densities of t: its effect normal with standard deviation τ, against no effect."""

    def density(effect: float) -> float:
        noncentral = stats.nct.pdf(abs(t), design.freedom, math.copysign(1, t) * effect * math.sqrt(design.size))
        return float(noncentral * stats.norm.pdf(effect, scale=design.scale))

    near = t / math.sqrt(design.size)
    reach, points = 8 * design.scale, [-near, 0, near]
    marginal, _ = integrate.quad(density, -reach, reach, points=points, epsabs=0, epsrel=1e-11, limit=400)
    return marginal / float(stats.t.pdf(t, design.freedom))


@pytest.mark.parametrize(
    "design", [paired(2), paired(3), paired(10), paired(30), beside_number(2), beside_number(5), beside_number(30)]
)
@pytest.mark.parametrize("t", [0.0, 0.7, 2.5, 6.0])
def test_the_closed_form_is_the_integral(design, t):
    assert math.exp(design.log_e(t)) == pytest.approx(bayes_factor(t, design), rel=1e-8)


def likelihood(values: np.ndarray, effect: float) -> float:
    """Return the density of scores with mean μ + effect · σ for all but the first, over μ flat and σ with 1/σ."""

    def integrand(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        moved = values - effect * sigma * (np.arange(len(values)) > 0)
        n, squares = len(values), float(((moved - moved.mean()) ** 2).sum())
        return math.exp(-squares / (2 * sigma**2) - (n - 1) * log_sigma) / math.sqrt(n)

    return integrate.quad(integrand, -8, 8, epsabs=0, epsrel=1e-11, limit=400)[0]


@pytest.mark.slow
def test_a_reported_number_is_the_first_score_of_its_method():
    values = np.array([61.0, 62.1, 62.4, 61.9])
    effects = integrate.quad(
        lambda effect: likelihood(values - 61, effect) * stats.norm.pdf(effect, scale=NUMBER_SCALE),
        -8 * NUMBER_SCALE, 8 * NUMBER_SCALE, points=[0, 3], epsabs=0, epsrel=1e-9, limit=200,
    )  # fmt: skip
    score = measure(values[1:].tolist(), Score(mean=61.0))
    assert score.p == pytest.approx(likelihood(values - 61, 0.0) / effects[0], rel=1e-7)


def test_one_seed_has_the_e_value_1_and_a_larger_t_a_smaller_p():
    assert compare_paired([0], [1.0], [9.0]).p_in("anytime") == 1.0
    p = [paired(5).p(t, "anytime") for t in (0.0, 2.0, 5.0, 20.0)]
    assert p[0] == 1.0
    assert p == sorted(p, reverse=True)


@pytest.mark.parametrize("level", [LEVEL, LEVEL / 8, LEVEL / 160])
@pytest.mark.parametrize("design", [paired(4), paired(12), beside_number(9)])
def test_the_interval_ends_where_the_test_begins_to_reject(design, level):
    limit = design.critical(level, "anytime")
    if math.isinf(limit):
        assert design.p(1e9, "anytime") > level
    else:
        assert design.p(limit, "anytime") == pytest.approx(level, rel=1e-9)
    assert design.p(design.critical(level, "planned"), "planned") == pytest.approx(level, rel=1e-9)


@pytest.mark.parametrize("design", [paired, beside_number])
def test_three_seeds_are_the_fewest_that_can_show_a_difference(design):
    limits = [design(n).critical(LEVEL, "anytime") for n in (2, 3, 4)]
    assert limits[0] == math.inf
    assert limits[1] > limits[2]
    assert math.isfinite(limits[1])


def running_t(drawn: np.ndarray) -> np.ndarray:
    """Return (paths, seeds − 1) means over standard deviations of the first 2, 3, … columns."""
    n = np.arange(1, drawn.shape[1] + 1)
    mean = drawn.cumsum(1) / n
    squares = (drawn**2).cumsum(1) - n * mean**2
    return mean[:, 1:], np.sqrt(squares[:, 1:] / (n[1:] - 1))


@pytest.mark.slow
@pytest.mark.parametrize("level", [LEVEL, LEVEL / 20])
def test_equal_methods_looked_at_with_every_seed_up_to_100(level):
    # 40,000 paths at 5 % have a standard error of 0.11 points. The t test itself reaches 36 %.
    mean, std = running_t(np.random.default_rng(1).standard_normal((40_000, 100)))
    limits = np.array([paired(n).critical(level, "anytime") / math.sqrt(n) for n in range(2, 101)])
    rate = (np.abs(mean) >= limits * std).any(1).mean()
    assert 0.3 * level < rate < level + 3 * math.sqrt(level / 40_000)


@pytest.mark.slow
def test_a_reported_number_looked_at_with_every_seed_up_to_100():
    rng = np.random.default_rng(2)
    mean, std = running_t(rng.standard_normal((40_000, 100)))
    gap = np.abs(mean - rng.standard_normal((40_000, 1)))
    designs = [beside_number(n) for n in range(2, 101)]
    limits = np.array([design.critical(LEVEL, "anytime") / math.sqrt(design.size) for design in designs])
    assert 0.005 < (gap >= limits * std).any(1).mean() < LEVEL
