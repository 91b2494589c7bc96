"""Williams' t and Steiger's Z: published values, edges, and false positives where there is no difference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from cse_cli.core.correlated import steiger, williams


@pytest.mark.parametrize(
    ("r12", "r13", "r23", "n", "t", "printed"),
    [
        # R's psych::r.test on mtcars: hp with mpg, hp with am, mpg with am
        (-0.7761684, -0.2432043, 0.5998324, 32, -5.563815, 1e-6),
        # psych::r.test(n = 30, r12 = .50, r13 = .10, r23 = .70 | .1 | .8), printed to two decimals
        (0.5, 0.1, 0.7, 30, 3.38, 0.01),
        (0.5, 0.1, 0.1, 30, 1.76, 0.01),
        (0.5, 0.1, 0.8, 30, 4.64, 0.01),
        # R's cocor, "williams1959"; its correlations are printed to four decimals, so the fourth of t is not theirs
        (0.8066, 0.2383, 0.2255, 177, 9.3823, 1e-3),
        (0.5447, 0.8, 0.0729, 70, -2.8114, 1e-3),
    ],
)
def test_williams_gives_published_values(r12, r13, r23, n, t, printed):
    found = williams(r12, r13, r23, n)
    assert found is not None
    assert found.statistic == pytest.approx(t, abs=printed / 2)


@pytest.mark.parametrize(
    ("values", "p", "printed"),
    # the first is known to seven digits, and so are its correlations: that moves p by 5e-12
    [((-0.7761684, -0.2432043, 0.5998324, 32), 5.301858e-06, 2e-11), ((0.5447, 0.8, 0.0729, 70), 0.0065, 1e-4)],
)
def test_williams_has_n_less_three_degrees_of_freedom(values, p, printed):
    found = williams(*values)
    assert found is not None
    assert found.p == pytest.approx(p, abs=printed / 2)


@pytest.mark.parametrize(
    ("r12", "r13", "r23", "n", "z"),
    [
        # "steiger1980" of cocor.dep.groups.overlap; its inputs are printed to four decimals
        (0.8066, 0.2383, 0.2255, 177, 8.5460),
        (-0.1741, 0.2015, 0.3734, 646, -8.6124),
        (0.0228, 0.3522, 0.3718, 553, -7.1345),
    ],
)
def test_steiger_gives_published_values(r12, r13, r23, n, z):
    found = steiger(r12, r13, r23, n)
    assert found is not None
    assert found.statistic == pytest.approx(z, rel=2e-4)


@pytest.mark.parametrize("test", [williams, steiger])
def test_sign_equal_correlations_and_too_few(test):
    one, other = test(0.7, 0.6, 0.8, 50), test(0.6, 0.7, 0.8, 50)
    assert one.statistic > 0
    assert (one.statistic, one.p) == pytest.approx((-other.statistic, other.p), rel=1e-12)
    assert test(0.7, 0.7, 1.0, 50) == (0.0, 1.0)
    assert test(0.7, 0.6, 0.8, 3) is None


def test_a_perfect_correlation_has_no_fisher_transform():
    assert steiger(1.0, 0.6, 0.6, 50) is None
    assert williams(1.0, 0.6, 0.6, 50) is not None


def rejected(r_gold: float, r_models: float, ranked: bool, repeats: int = 2000, n: int = 200) -> tuple[float, float]:
    """Return the share of data sets of two equally good models in which each test finds a difference at 5 %."""
    rng = np.random.default_rng(11)
    shape = np.linalg.cholesky(np.array([[1, r_gold, r_gold], [r_gold, 1, r_models], [r_gold, r_models, 1]]))
    hits = np.zeros(2)
    for _ in range(repeats):
        drawn = shape @ rng.standard_normal((3, n))
        if ranked:
            drawn[0] = np.round(2 * drawn[0])  # gold scores come in steps, so with ties
            drawn = rankdata(drawn, axis=1)
        r = np.corrcoef(drawn)
        tests = (williams(r[0, 1], r[0, 2], r[1, 2], n), steiger(r[0, 1], r[0, 2], r[1, 2], n))
        hits += [one is not None and one.p < 0.05 for one in tests]
    return float(hits[0] / repeats), float(hits[1] / repeats)


@pytest.mark.parametrize(("r_gold", "r_models"), [(0.3, 0.5), (0.7, 0.9)])
def test_five_in_a_hundred_equal_models_are_called_different(r_gold, r_models):
    # 2,000 tries at 5 % have a standard error of 0.5 points.
    assert rejected(r_gold, r_models, ranked=False) == pytest.approx((0.05, 0.05), abs=0.015)


def test_on_ranks_with_ties_it_is_a_little_more_than_five():
    # What the documentation says of Spearman's ρ: 5 to 8 in a hundred.
    share, _ = rejected(0.7, 0.9, ranked=True)
    assert 0.045 < share < 0.08
