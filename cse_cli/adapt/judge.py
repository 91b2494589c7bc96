"""Differences of a candidate from the unchanged model over documents and seeds together, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from cse_cli.core.formatting import signed
from cse_cli.core.results import SERIES_FOLDER, Result, read_series
from cse_cli.runs.record import folder_of
from registry.statistics import resampled_spearman, spearman

MARGIN = 1.0
"""Points of Spearman's correlation on `stsb_open` that a candidate may lose."""
RESAMPLES = 1000


@dataclass(frozen=True)
class Difference:
    """Score of the unchanged model, and a candidate's difference from it with the 95 % interval, × 100."""

    before: float
    value: float
    low: float
    high: float


Values = Mapping[str, NDArray[np.float64]]


def differences(unchanged: Sequence[Result], candidate: Sequence[Result]) -> dict[str, Difference]:
    """Return evaluator → difference, for each evaluator with values for its queries or pairs.

    With dₛᵢ the difference for query i with seed s, the interval of the mean is ± √(a² + b²): a is the half width of
    Student's interval over the documents, with the mean over seeds for each query and the standard error of clusters of
    queries with the same answer, and b that over the seeds, with the mean over queries for each. It holds for other
    documents and other seeds. For Spearman's correlation, a has the standard error of resampled pairs.

    Source: half widths of independent parts add in quadrature (Zou and Donner 2008, Statistics in Medicine 27:1693).
    """
    before, *after = (read_series(folder_of(run.run_id or "") / SERIES_FOLDER) for run in (unchanged[0], *candidate))
    return {name: difference(before[name], [run[name] for run in after]) for name in before}


def difference(before: Values, after: Sequence[Values]) -> Difference:
    """Return the difference on one evaluator, from its values for each seed."""
    if "reciprocal_rank" in before:
        base = before["reciprocal_rank"]
        each = np.array([run["reciprocal_rank"] for run in after]) - base
        score, of_seeds = float(base.mean()), each.mean(axis=1)
        answers, of_answer = np.unique(before["answer"], return_inverse=True)
        sums = np.bincount(of_answer, weights=each.mean(axis=0) - each.mean())
        number = len(answers)
        error = float((sums**2).sum() * number / (number - 1)) ** 0.5 / len(base)
    else:
        gold, cosines = before["gold"], [before["cosine"], *(run["cosine"] for run in after)]
        rho = spearman(gold, cosines)
        drawn = resampled_spearman(gold, cosines, RESAMPLES, np.random.default_rng(0))
        score, of_seeds, number = float(rho[0]), rho[1:] - rho[0], len(gold)
        error = float((drawn[1:].mean(axis=0) - drawn[0]).std(ddof=1))
    mean, seeds = float(of_seeds.mean()), len(of_seeds)
    reach = float(t.ppf(0.975, number - 1)) * error
    if seeds > 1:
        reach = math.hypot(reach, float(t.ppf(0.975, seeds - 1)) * float(of_seeds.std(ddof=1)) / seeds**0.5)
    return Difference(100 * score, 100 * mean, 100 * (mean - reach), 100 * (mean + reach))


def verdict(found: Mapping[str, Difference], chosen: str) -> tuple[str, str]:
    """Return a word and a sentence: whether the chosen candidate finds documents better than the unchanged model.

    It is "better" only if the whole interval of `queries` is above 0, and the model lost no more than `MARGIN` points
    on `stsb_open`.
    """
    queries, kept = found["queries"], found["kept"]
    size = f"{signed(queries.value)} ({signed(queries.low)} to {signed(queries.high)})"
    if queries.low <= 0:
        word = "worse" if queries.high < 0 else "undecided"
        return word, f"No gain is shown over the unchanged model: the best candidate ({chosen}) differs by {size}."
    if kept.value < -MARGIN:
        lost = f"{-kept.value:.1f} points on stsb_open"
        return "forgets", f"The model ({chosen}) finds your documents better, {size}, but loses {lost}."
    return "better", f"The model ({chosen}) finds your documents better: {size}."
