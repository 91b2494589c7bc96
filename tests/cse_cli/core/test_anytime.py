"""The anytime-valid t test: its closed form, its interval, and its false positives at every look."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from cse_cli.analysis.score_table import score_against_number
from cse_cli.core.stats import (
    LEVEL,
    NUMBER_SCALE,
    Design,
    beside_number,
    compare_paired,
    paired,
)


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


def test_a_reported_number_is_the_first_score_of_its_method():
    values = np.array([61.0, 62.1, 62.4, 61.9])
    effects = integrate.quad(
        lambda effect: likelihood(values - 61, effect) * stats.norm.pdf(effect, scale=NUMBER_SCALE),
        -8 * NUMBER_SCALE, 8 * NUMBER_SCALE, points=[0, 3], epsabs=0, epsrel=1e-9, limit=200,
    )  # fmt: skip
    score = score_against_number(values[1:].tolist(), 61.0)
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


@pytest.mark.parametrize("level", [LEVEL, LEVEL / 20])
def test_equal_methods_looked_at_with_every_seed_up_to_100(level):
    # 40,000 paths at 5 % have a standard error of 0.11 points. The t test itself reaches 36 %.
    mean, std = running_t(np.random.default_rng(1).standard_normal((40_000, 100)))
    limits = np.array([paired(n).critical(level, "anytime") / math.sqrt(n) for n in range(2, 101)])
    rate = (np.abs(mean) >= limits * std).any(1).mean()
    assert 0.3 * level < rate < level + 3 * math.sqrt(level / 40_000)


def test_a_reported_number_looked_at_with_every_seed_up_to_100():
    rng = np.random.default_rng(2)
    mean, std = running_t(rng.standard_normal((40_000, 100)))
    gap = np.abs(mean - rng.standard_normal((40_000, 1)))
    designs = [beside_number(n) for n in range(2, 101)]
    limits = np.array([design.critical(LEVEL, "anytime") / math.sqrt(design.size) for design in designs])
    assert 0.005 < (gap >= limits * std).any(1).mean() < LEVEL
