"""Rank correlation of short columns, with p-values that count every order."""

import pytest
from scipy.stats import spearmanr

from cse_cli.analysis.paper_tables import trend


def test_three_cells_in_the_same_order_prove_nothing():
    found = trend("x", [1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    assert (found.rho, found.n, found.exact) == (pytest.approx(1.0), 3, True)
    assert found.p == pytest.approx(2 / 6)  # of six orders, this one and its reverse


def test_five_cells_by_hand():
    # ranks 1 2 3 4 5 and 2 1 3 4 5: Σd² = 2, ρ = 1 − 6·2 / (5·24) = 0.9; of 120 orders 1 has Σd² 0 and 4 have 2
    found = trend("x", [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 3.0, 4.0, 5.0])
    assert found.rho == pytest.approx(0.9)
    assert found.p == pytest.approx(2 * (1 + 4) / 120)


def test_ties_share_their_ranks():
    ours, paper = [1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 3.0]
    assert trend("x", ours, paper).rho == pytest.approx(spearmanr(ours, paper).statistic)


def test_many_cells_are_approximated():
    ours = [float(value) for value in (1, 3, 2, 5, 4, 7, 6, 9, 8)]
    found = trend("x", ours, sorted(ours))
    assert not found.exact
    assert found.p == pytest.approx(spearmanr(ours, sorted(ours)).pvalue)


def test_two_cells_are_no_trend_and_a_constant_has_none():
    assert trend("x", [1.0, 2.0], [1.0, 2.0]) is None
    assert trend("x", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).rho is None
