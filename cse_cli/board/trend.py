"""Whether two columns rise and fall together, exactly where they are short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from cse_cli.board.shape import Trend

EXACT = 8
"""Most cells whose orders are all counted: 40,320 of them."""
FEWEST = 3
"""Two cells agree or disagree, and that is no trend."""


def trend(along: str, ours: Sequence[float], paper: Sequence[float]) -> Trend | None:
    """Return Spearman's correlation of our cells with the paper's, ties sharing their ranks; None for too few cells."""
    from scipy.stats import rankdata, spearmanr  # half a second to import

    n = len(ours)
    if n < FEWEST:
        return None
    if len(set(ours)) == 1 or len(set(paper)) == 1:
        return Trend(along=along, rho=None, p=None, n=n, exact=True)
    found = spearmanr(ours, paper)
    if n > EXACT:
        return Trend(along=along, rho=float(found.statistic), p=float(found.pvalue), n=n, exact=False)
    a, b = (rankdata(values) - (n + 1) / 2 for values in (ours, paper))
    sums = np.array(list(permutations(a))) @ b
    extreme = np.abs(sums) >= abs(float(a @ b)) - 1e-9
    return Trend(along=along, rho=float(found.statistic), p=float(extreme.mean()), n=n, exact=True)
