"""Tests of two correlations that share a variable."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import ndtr, stdtr


class Dependent(NamedTuple):
    """Test of r12 = r13 with a two-sided p-value. The statistic is positive if r12 is larger."""

    statistic: float
    p: float


def williams(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Williams' t with n − 3 degrees of freedom, or None below four observations.

        t = (r12 − r13) · √[ (n − 1)(1 + r23) / (2 · (n − 1)/(n − 3) · |R| + r̄² · (1 − r23)³) ]
        |R| = 1 − r12² − r13² − r23² + 2 · r12 · r13 · r23,   r̄ = (r12 + r13) / 2

    Source: Williams (1959), Regression Analysis, Steiger (1980), Psychological Bulletin 87, page 246.
    Steiger recommends it. It is exact for product moments of normal variables and an approximation for Spearman's ρ.
    `tests/cse_cli/core/test_correlated.py` measures its false positives.

    Args:
        r12: Correlation of the gold scores with the first method's scores.
        r13: Correlation of the gold scores with the second method's scores.
        r23: Correlation of the two methods' scores with each other.
        n: Number of observations.
    """
    if n <= 3:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    spread = 2 * (n - 1) / (n - 3) * determinant + ((r12 + r13) / 2) ** 2 * (1 - r23) ** 3
    if spread == 0:
        return None
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / spread)
    return Dependent(t, float(2 * stdtr(n - 3, -abs(t))))


def steiger(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Steiger's Z of the Fisher-transformed correlations, pooled, or None if it is not defined.

        Z = (z12 − z13) · √(n − 3) / √(2 − 2s),   z = artanh r
        s = [ r23 · (1 − 2r̄²) − ½ · r̄² · (1 − 2r̄² − r23²) ] / (1 − r̄²)²,   r̄ = (r12 + r13) / 2

    Source: Dunn and Clark (1969); Steiger (1980), Psychological Bulletin 87, page 247, with the mean of the two in s.
    """
    mean = (r12 + r13) / 2
    if n <= 3 or max(abs(r12), abs(r13)) >= 1:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    shared = r23 * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - r23**2) / 2
    spread = 2 - 2 * shared / (1 - mean**2) ** 2
    if spread <= 0:
        return None
    z = (math.atanh(r12) - math.atanh(r13)) * math.sqrt((n - 3) / spread)
    return Dependent(z, float(2 * ndtr(-abs(z))))
