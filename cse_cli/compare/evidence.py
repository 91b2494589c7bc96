"""The sentence pairs that runs kept, and which of them may be put beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.compare.metrics import AVERAGE, RANKED, evaluators
from cse_cli.compare.pairs import Kept, OnPairs, kept, on_average, on_pairs, one_correlation
from cse_cli.results import Result
from cse_cli.tracking import reader

Recipe = Mapping[str, Any]
Couples = Mapping[int, tuple[Result, Result]]


@dataclass(frozen=True)
class Evidence:
    """What runs kept.

    Args:
        pairs: Evaluator → run id → its pairs.
        without: Runs that kept nothing at all.
    """

    pairs: Mapping[str, Mapping[str, Kept]]
    without: frozenset[str]

    def compared(self, metric: str, couples: Couples) -> tuple[OnPairs | None, str | None]:
        """Return the comparison of a metric on the same pairs, and why it is missing or lacks seeds.

        Args:
            metric: `evaluator.metric`, or the average.
            couples: Seed → its two runs.
        """
        found: dict[int, tuple[list[Kept], list[Kept]]] = {}
        reasons: dict[str, list[int]] = {}
        for seed, (first, second) in couples.items():
            both = [self._both(name, metric, first, second) for name in evaluators([metric])]
            told = [one for one in both if isinstance(one, str)]
            if told:
                reasons.setdefault(told[0], []).append(seed)
            else:
                couple = [one for one in both if not isinstance(one, str)]
                found[seed] = [a for a, _ in couple], [b for _, b in couple]
        note = "; ".join(
            reason if not found else f"seed {', '.join(map(str, seeds))} left out: {reason}"
            for reason, seeds in reasons.items()
        )
        return (_tested(metric, found) if found else None), note or None

    def _both(self, evaluator: str, metric: str, first: Result, second: Result) -> tuple[Kept, Kept] | str:
        """Return what two runs kept of an evaluator, or why it cannot be compared."""
        name = RANKED if metric == AVERAGE else metric.rpartition(".")[2]
        have: list[Kept] = []
        for run in (first, second):
            run_id = run.run_id or ""
            if run_id in self.without:
                return f"run {run_id[:8]} kept no numbers of single pairs"
            one = self.pairs[evaluator].get(run_id)
            if one is None:
                return "no score of sentence pairs"
            if not one_correlation(one, run.scores[evaluator][name]):
                return "not Spearman's correlation over all pairs together"
            have.append(one)
        if not have[0].same_pairs(have[1]):
            return f"the data of {evaluator} are not the same in both"
        return have[0], have[1]


def gather(runs: Sequence[tuple[Result, Recipe | None]], wanted: Sequence[str], resamples: int) -> Evidence:
    """Read what runs kept, and resample the pairs of the evaluators wanted.

    Args:
        runs: Each with its resolved recipe, where that can be read.
        wanted: Evaluators.
        resamples: Data sets drawn.
    """
    read = [(run.run_id or "", run, recipe, reader.series_of(run.run_id) if run.run_id else {}) for run, recipe in runs]
    pairs = {
        name: kept(
            [(run_id, series, _digest(run, recipe, name)) for run_id, run, recipe, series in read], name, resamples
        )
        for name in wanted
    }
    return Evidence(pairs, frozenset(run_id for run_id, _, _, series in read if not series))


def _digest(run: Result, recipe: Recipe | None, evaluator: str) -> str:
    """Return the digest of the data set that a run's evaluator read; empty where the run does not say."""
    part = {} if recipe is None else recipe.get("evaluators", {}).get(evaluator, {})
    data = part.get("dataset") or part.get("file")
    return run.fingerprints.get(f"{data}/{part.get('split')}", "")


def _tested(metric: str, found: Mapping[int, tuple[list[Kept], list[Kept]]]) -> OnPairs:
    first, second = [a for a, _ in found.values()], [b for _, b in found.values()]
    if metric == AVERAGE:
        return on_average(list(found), first, second)
    return on_pairs(list(found), [a[0] for a in first], [b[0] for b in second])
