"""Tests between two methods: on the same sentence pairs, resampled with the trained models unchanged, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
from pydantic import BaseModel

from cse_cli.core.plans import SeedPlan
from cse_cli.core.results import RANKED, SERIES_FOLDER, STS_TASKS, Result, read_series
from cse_cli.core.stats import LEVEL, Paired, p_text, seeds_text
from cse_cli.runs.record import folder_of
from cse_cli.runs.scores import main_metrics, metric_value
from registry.errors import UnknownNameError, suggestion
from registry.papers import AVERAGE
from registry.statistics import Floats, resampled_spearman, spearman

_SAME = 1e-6
"""Largest difference between a score and 100 · ρ of its pairs that rounding explains."""


def shared_metrics(runs: Sequence[Result]) -> list[str]:
    """Return the main metric of each evaluator that all runs have, then the average."""
    wanted = [*main_metrics(runs[0].scores).values(), AVERAGE]
    return [metric for metric in wanted if all(metric_value(run.scores, metric) is not None for run in runs)]


def find_metrics(names: Sequence[str], runs: Sequence[Result]) -> list[str]:
    """Return the metrics with these names: `evaluator.metric`, an evaluator for its main metric, or the average."""
    every = {f"{name}.{metric}" for run in runs for name, scores in run.scores.items() for metric in scores}
    every |= {AVERAGE for run in runs if metric_value(run.scores, AVERAGE) is not None}
    main = {name: metric for run in runs for name, metric in main_metrics(run.scores).items()}
    found = [main.get(name, name) for name in names]
    for name, metric in zip(names, found, strict=True):
        if metric not in every:
            raise UnknownNameError(
                f"--metric '{name}': no run has this metric.{suggestion(name, [*main, *sorted(every)])}",
                f"use evaluator.metric, an evaluator or {AVERAGE}; evaluators: {', '.join(list(main)[:5])}",
                code="compare.unknown_metric",
            )
    return list(dict.fromkeys(found))


def evaluators_of(metric: str) -> Sequence[str]:
    """Return the evaluators of `evaluator.metric`, or those of the average."""
    return STS_TASKS if metric == AVERAGE else (metric.rpartition(".")[0],)


class OfSeed(BaseModel, frozen=True):
    """Difference of two models with one seed on one metric's pairs, in points, with its 95 % percentile interval."""

    seed: int
    difference: float
    low: float
    high: float


class OnPairs(BaseModel, frozen=True):
    """Mean over seeds, with the same resampled pairs for every seed.

    Args:
        pairs: Number of sentence pairs, of all evaluators together for an average.
        p: Two-sided bootstrap p-value: twice the share of resamples on the other side of 0.
        p_adjusted: p-value corrected for metrics and comparisons. None if the metric is not tested.
        of_seeds: Result of each seed. The seeds share their pairs, so their p-values cannot be combined.
    """

    pairs: int
    resamples: int
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float | None
    of_seeds: tuple[OfSeed, ...]


class RunPairs(NamedTuple):
    """Gold scores of the sentence pairs of one run and one evaluator, ρ of the pairs, and ρ of each resample."""

    gold: Floats
    rho: float
    draws: Floats

    def same_pairs(self, other: RunPairs) -> bool:
        """Return whether each position has the same pair in both."""
        return np.array_equal(self.gold, other.gold)

    def explains(self, score: float) -> bool:
        """Return whether a score is 100 · ρ over all pairs, not a mean over subsets or another metric."""
        return abs(100 * self.rho - score) < _SAME


def resample_runs(series: Mapping[str, Mapping[str, Any]], evaluator: str, resamples: int) -> dict[str, RunPairs]:
    """Return run ID → pairs of one evaluator, for the runs whose series have them. Each run is resampled once."""
    groups: dict[bytes, list[tuple[str, Floats, Floats]]] = {}
    for run_id, arrays in series.items():
        if "gold" in arrays and "cosine" in arrays:
            gold, cosine = (np.asarray(arrays[name], dtype=np.float64) for name in ("gold", "cosine"))
            groups.setdefault(gold.tobytes(), []).append((run_id, gold, cosine))
    found: dict[str, RunPairs] = {}
    for members in groups.values():
        gold, cosines = members[0][1], [cosine for *_, cosine in members]
        rng = np.random.default_rng((0, crc32(evaluator.encode())))  # independent for two evaluators
        draws = resampled_spearman(gold, cosines, resamples, rng)
        for (run_id, *_), rho, drawn in zip(members, spearman(gold, cosines), draws, strict=True):
            found[run_id] = RunPairs(gold, float(rho), drawn)
    return found


def compare_pairs(seeds: Mapping[int, Sequence[tuple[RunPairs, RunPairs]]]) -> OnPairs:
    """Compare two methods by the mean over seeds and evaluators, given both runs' pairs of each evaluator by seed."""
    of_seeds: list[OfSeed] = []
    every: list[Floats] = []
    for seed, couples in seeds.items():
        drawn = np.mean([second.draws - first.draws for first, second in couples], axis=0)
        difference = 100 * float(np.mean([second.rho - first.rho for first, second in couples]))
        low, high = _interval(drawn)
        of_seeds.append(OfSeed(seed=seed, difference=difference, low=low, high=high))
        every.append(drawn)
    drawn = np.mean(every, axis=0)
    low, high = _interval(drawn)
    # The observed data set counts on both sides, so p is never 0.
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
    return OnPairs(
        pairs=sum(len(first.gold) for first, _ in next(iter(seeds.values()))),
        resamples=len(drawn),
        difference=float(np.mean([one.difference for one in of_seeds])),
        low=low,
        high=high,
        p=p,
        p_adjusted=p,
        of_seeds=tuple(of_seeds),
    )


def _interval(drawn: Floats) -> tuple[float, float]:
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
    return 100 * float(low), 100 * float(high)


class PairedTests:
    """Recorded sentence pairs of runs behind some metrics, resampled once."""

    def __init__(self, runs: Iterable[Result], metrics: Iterable[str], resamples: int) -> None:
        ids = dict.fromkeys(run.run_id for run in runs if run.run_id)
        self.series = {run_id: read_series(folder_of(run_id) / SERIES_FOLDER) for run_id in ids}
        self.pairs: dict[str, dict[str, RunPairs]] = {}
        for name in dict.fromkeys(name for metric in metrics for name in evaluators_of(metric)):
            of_runs = {run_id: series.get(name, {}) for run_id, series in self.series.items()}
            self.pairs[name] = resample_runs(of_runs, name, resamples)

    def compare(self, metric: str, runs: Mapping[int, tuple[Result, Result]]) -> tuple[OnPairs | None, str | None]:
        """Return the comparison of a metric on the same pairs, and the reason why it or some seeds are missing."""
        found: dict[int, list[tuple[RunPairs, RunPairs]]] = {}
        reasons: dict[str, list[str]] = {}
        for seed, (first, second) in runs.items():
            pairs = [self._pairs(name, metric, first, second) for name in evaluators_of(metric)]
            reason = next((one for one in pairs if isinstance(one, str)), None)
            if reason is not None:
                reasons.setdefault(reason, []).append(str(seed))
            else:
                found[seed] = [one for one in pairs if not isinstance(one, str)]
        notes = [f"without seed {', '.join(seeds)}: {why}" if found else why for why, seeds in reasons.items()]
        return compare_pairs(found) if found else None, "; ".join(notes) or None

    def _pairs(self, evaluator: str, metric: str, first: Result, second: Result) -> tuple[RunPairs, RunPairs] | str:
        """Return the pairs of two runs, or the reason why they cannot be compared."""
        name = RANKED if metric == AVERAGE else metric.rpartition(".")[2]
        kept: list[RunPairs] = []
        for run in (first, second):
            run_id = run.run_id or ""
            if not self.series.get(run_id):
                return f"run {run_id[:8]} recorded no sentence pairs"
            if (pairs := self.pairs[evaluator].get(run_id)) is None:
                return "it is not a score of sentence pairs"
            if not pairs.explains(run.scores[evaluator][name]):
                return "it is not Spearman's correlation over all pairs together"
            kept.append(pairs)
        if not kept[0].same_pairs(kept[1]):
            return f"the runs used different data for {evaluator}"
        return kept[0], kept[1]


Finding = Literal["different", "undecided", "equal", "one_seed", "constant", "incomplete", "selecting", "untested"]
"""Kind of conclusion.

"different": the test over seeds rejects equality after all corrections. "undecided": it does not. "equal": no seed
shows a difference. "constant": every seed shows the same difference, so there is nothing to test. "one_seed": there is
no standard deviation. "incomplete": planned seeds are missing. "selecting": the metric selected the states. "untested":
it is not the primary metric, and the user did not name it.
"""


def verdict(
    second: str, seeds: Paired, pairs: OnPairs | None, more_is_better: bool, plan: SeedPlan
) -> tuple[Finding, str]:
    """Return the conclusion about a metric and its sentence. "higher" is not called "better" if that is not known."""
    finding, text = _finding(second, seeds, ("better", "worse") if more_is_better else ("higher", "lower"), plan)
    if pairs is None or pairs.p_adjusted is None or finding in ("equal", "incomplete"):
        return finding, text
    separates = pairs.p_adjusted < LEVEL
    if finding == "different":
        explained = not separates or pairs.difference * seeds.difference <= 0
        clause = "; but the choice of sentence pairs could explain it"
        return finding, text + (clause if explained else "; the choice of sentence pairs does not explain it either")
    if finding == "undecided":
        clause = "; for these trained models, the choice of sentence pairs does not explain it"
        return finding, text + (clause if separates else "")
    than = "more" if separates else "no more"
    return finding, f"{text}, {than} than the choice of sentence pairs explains ({p_text(pairs.p_adjusted)})"


def _finding(second: str, seeds: Paired, words: tuple[str, str], plan: SeedPlan) -> tuple[Finding, str]:
    n, gap, which = len(seeds.seeds), _size(abs(seeds.difference)), words[0 if seeds.difference > 0 else 1]
    if seeds.difference == 0 and not seeds.std:
        return "equal", f"no difference in {'the one seed' if n == 1 else f'any of {n} seeds'}"
    if n == 1:
        return "one_seed", f"not decided: one seed has no standard deviation; {second} is {gap} {which} with it"
    if seeds.constant:
        same = f"{second} is {gap} {which} with each of {n} seeds"
        return "constant", f"{same}: the seed has no effect, so there is nothing to test"
    if plan.mode == "incomplete":
        return "incomplete", f"not decided: {plan.text}"
    if seeds.p_adjusted is not None and seeds.p_adjusted < LEVEL:
        test = f"{n} seeds, {plan.text}, {p_text(seeds.p_adjusted)}"
        return "different", f"{second} is {which} by {gap}{_half(seeds)} ({test})"
    if seeds.level is None:
        return "undecided", f"not tested, because the primary metric shows no difference: {second} is {gap} {which}"
    text = f"not distinguishable with {n} seeds, {plan.text}: {second} is {gap}{_half(seeds)} {which}"
    p = seeds.p_in(seeds.mode)
    if p is not None and p < LEVEL:
        return "undecided", f"{text}; uncorrected {p_text(p)}"
    needed = "" if seeds.seeds_needed is None else f"; {seeds_text(seeds.seeds_needed)} seeds would be needed"
    return "undecided", text + needed


def _half(seeds: Paired) -> str:
    return "" if seeds.low is None or seeds.high is None else f" ± {_size((seeds.high - seeds.low) / 2)}"


def _size(value: float) -> str:
    """Return two decimals, or one significant digit if these were 0."""
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.1g}"
