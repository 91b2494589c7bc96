"""Are two correlations with the same variable different? Two cosines, one gold score, the same sentence pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtr, stdtr

SMALLEST = 4
"""Pairs below which neither test has a degree of freedom."""


@dataclass(frozen=True)
class Dependent:
    """A test of r12 = r13.

    Args:
        statistic: Positive where r12 is the larger.
        p: Two-sided.
    """

    statistic: float
    p: float


def williams(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Williams' t with n − 3 degrees of freedom, which Steiger recommends; None below four observations.

        t = (r12 − r13) · √[ (n − 1)(1 + r23) / (2 · (n − 1)/(n − 3) · |R| + r̄² · (1 − r23)³) ]
        |R| = 1 − r12² − r13² − r23² + 2 · r12 · r13 · r23,   r̄ = (r12 + r13) / 2

    Source: Williams (1959), Regression Analysis, Steiger (1980), Psychological Bulletin 87, page 246.
    Made for product moments of normal variables. For Spearman's ρ it is an approximation; `tests/cse_cli/compare`
    measures its false positives.

    Args:
        r12: Correlation of gold scores with the first method's.
        r13: Of gold scores with the second method's.
        r23: Of the two methods' scores with each other.
        n: Observations.
    """
    if n < SMALLEST:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    mean = (r12 + r13) / 2
    spread = 2 * (n - 1) / (n - 3) * determinant + mean**2 * (1 - r23) ** 3
    if spread == 0:
        return None
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / spread)
    return Dependent(t, float(2 * stdtr(n - 3, -abs(t))))


def steiger(r12: float, r13: float, r23: float, n: int) -> Dependent | None:
    """Return Steiger's Z of the Fisher-transformed correlations, pooled; None where it has no value.

        Z = (z12 − z13) · √(n − 3) / √(2 − 2s),   z = artanh r
        s = [ r23 · (1 − 2r̄²) − ½ · r̄² · (1 − 2r̄² − r23²) ] / (1 − r̄²)²,   r̄ = (r12 + r13) / 2

    Source: Dunn and Clark (1969); Steiger (1980), Psychological Bulletin 87, page 247: the mean of the two in s.
    """
    mean = (r12 + r13) / 2
    if n < SMALLEST or max(abs(r12), abs(r13)) >= 1:
        return None
    if r12 == r13:
        return Dependent(0.0, 1.0)
    shared = r23 * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - r23**2) / 2
    spread = 2 - 2 * shared / (1 - mean**2) ** 2
    if spread <= 0:
        return None
    z = (math.atanh(r12) - math.atanh(r13)) * math.sqrt((n - 3) / spread)
    return Dependent(z, float(2 * ndtr(-abs(z))))
