"""What speaks for a difference between two methods: their scores over seeds, and the sentence pairs that runs kept.

Would other pairs of the same kind tell the same difference? Pairs are resampled, the trained models as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict

from cse_cli.core.correlated import steiger, williams
from cse_cli.core.plans import SeedPlan
from cse_cli.core.results import RANKED, SERIES_FOLDER, STS_TASKS, Result, Scores, metric_value, read_series
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired
from cse_cli.runs.record import folder_of
from registry.catalogue.pairs import ROWS
from registry.errors import UnknownNameError, suggestion
from registry.papers import AVERAGE
from registry.statistics import Floats, resampled_spearman, spearman

_SEED = 0
_SAME = 1e-6
"""Points by which a score may differ from 100 · ρ of its pairs and be that ρ."""


def main_metrics(scores: Scores) -> dict[str, str]:
    """Return evaluator → its main metric as `evaluator.metric`: evaluators report it first."""
    return {name: f"{name}.{next(iter(metrics))}" for name, metrics in scores.items() if metrics}


def shared_metrics(runs: Sequence[Result]) -> list[str]:
    """Return each evaluator's main metric that all runs have, in their order, then the average."""
    wanted = [*main_metrics(runs[0].scores).values(), AVERAGE]
    return [metric for metric in wanted if all(metric_value(run.scores, metric) is not None for run in runs)]


def find_metrics(names: Sequence[str], runs: Sequence[Result]) -> list[str]:
    """Return the metrics that names mean: `evaluator.metric`, an evaluator for its main metric, or the average.

    Raises:
        UnknownNameError: No run has it.
    """
    every = {f"{name}.{metric}" for run in runs for name, scores in run.scores.items() for metric in scores}
    every |= {AVERAGE for run in runs if metric_value(run.scores, AVERAGE) is not None}
    main = {name: metric for run in runs for name, metric in main_metrics(run.scores).items()}
    found = [main.get(name, name) for name in names]
    for name, metric in zip(names, found, strict=True):
        if metric not in every:
            raise UnknownNameError(
                f"no run has metric '{name}'.{suggestion(name, [*main, *sorted(every)])}",
                f"known evaluators: {', '.join(main)}; a metric is evaluator.metric, or {AVERAGE}",
            )
    return list(dict.fromkeys(found))


def _evaluators(metric: str) -> Sequence[str]:
    return STS_TASKS if metric == AVERAGE else (metric.rpartition(".")[0],)


class OfSeed(BaseModel):
    """Two models that share a seed, on one evaluator's pairs; statistics are positive where the second is better.

    Args:
        difference: Of the two ρ, × 100, second less first.
        low: Lower end of its 95 % percentile bootstrap interval.
        high: Its upper end.
        between: ρ of the two models' cosines with each other.
        williams_t: Williams' t for dependent correlations, n − 3 degrees of freedom.
        steiger_z: Steiger's Z for them.
    """

    model_config = ConfigDict(frozen=True)

    seed: int
    difference: float
    low: float
    high: float
    between: float | None = None
    williams_t: float | None = None
    williams_p: float | None = None
    steiger_z: float | None = None
    steiger_p: float | None = None


class OnPairs(BaseModel):
    """The mean over seeds, with the same resampled pairs for every seed.

    Args:
        pairs: Sentence pairs, of all evaluators together for an average.
        resamples: Data sets drawn.
        p: Two-sided, of the bootstrap: twice the share of resamples on the other side of 0.
        p_adjusted: The same, corrected for metrics and comparisons. None if the metric is not tested.
        of_seeds: Each seed by itself; these tests share their pairs, so their p-values are not to be joined.
    """

    model_config = ConfigDict(frozen=True)

    pairs: int
    resamples: int
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float | None
    of_seeds: tuple[OfSeed, ...]


@dataclass(frozen=True)
class RunPairs:
    """The sentence pairs that one run kept of one evaluator.

    Args:
        digest: Of the data set's content, where the run says so; else empty.
        gold: (n,) people's scores.
        cosine: (n,) the model's.
        rho: Of the pairs as they are.
        draws: (resamples,) ρ of the resampled pairs.
    """

    digest: str
    gold: Floats
    cosine: Floats
    rho: float
    draws: Floats

    def same_pairs(self, other: RunPairs) -> bool:
        """Tell whether position i is the same pair in both."""
        # Digests were of files before they were of rows: of one kind of each, nothing follows.
        of_a_kind = self.digest.startswith(ROWS) == other.digest.startswith(ROWS)
        contradict = self.digest and other.digest and of_a_kind and self.digest != other.digest
        return not contradict and np.array_equal(self.gold, other.gold)

    def explains(self, score: float) -> bool:
        """Tell whether a score is 100 · ρ over all pairs together, not a mean over subsets or another metric."""
        return abs(100 * self.rho - score) < _SAME


Series = Mapping[str, Mapping[str, Any]]
SeedPairs = Mapping[int, Sequence[tuple[RunPairs, RunPairs]]]
"""Seed → of each evaluator, the pairs of the first and of the second run."""


def resample_runs(runs: Sequence[tuple[str, Series, str]], evaluator: str, resamples: int) -> dict[str, RunPairs]:
    """Return run id → its pairs of one evaluator, for the runs that kept any; each run is resampled once.

    Args:
        runs: Run id, series, and digest of the evaluator's data.
        evaluator: Name of the evaluator.
        resamples: Data sets drawn.
    """
    groups: dict[bytes, list[tuple[str, str, Floats, Floats]]] = {}
    for run_id, series, digest in runs:
        arrays = series.get(evaluator, {})
        if "gold" in arrays and "cosine" in arrays:
            gold, cosine = (np.asarray(arrays[name], dtype=np.float64) for name in ("gold", "cosine"))
            groups.setdefault(gold.tobytes(), []).append((run_id, digest, gold, cosine))
    found: dict[str, RunPairs] = {}
    for members in groups.values():
        gold, cosines = members[0][2], [cosine for *_, cosine in members]
        # Of one evaluator the same draws every time; of two evaluators independent ones.
        rng = np.random.default_rng((_SEED, crc32(evaluator.encode())))
        draws = resampled_spearman(gold, cosines, resamples, rng)
        for (run_id, digest, _, cosine), rho, drawn in zip(members, spearman(gold, cosines), draws, strict=True):
            found[run_id] = RunPairs(digest, gold, cosine, float(rho), drawn)
    return found


def compare_pairs(seeds: SeedPairs) -> OnPairs:
    """Compare two methods by the mean over evaluators, each resampled by itself, and over seeds."""
    of_seeds: list[OfSeed] = []
    every: list[Floats] = []
    for seed, couples in seeds.items():
        drawn = np.mean([second.draws - first.draws for first, second in couples], axis=0)
        difference = 100 * float(np.mean([second.rho - first.rho for first, second in couples]))
        low, high = _interval(drawn)
        tests = _correlation_tests(*couples[0]) if len(couples) == 1 else {}
        of_seeds.append(OfSeed(seed=seed, difference=difference, low=low, high=high, **tests))
        every.append(drawn)
    drawn = np.mean(every, axis=0)
    low, high = _interval(drawn)
    # The observed data set counts as one more on either side, so that no finite number of resamples gives 0.
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


def _correlation_tests(first: RunPairs, second: RunPairs) -> dict[str, float | None]:
    between = float(spearman(first.cosine, [second.cosine])[0])
    correlated = (second.rho, first.rho, between, len(first.gold))
    t, z = williams(*correlated), steiger(*correlated)
    found: dict[str, float | None] = {"between": between}
    for names, test in ((("williams_t", "williams_p"), t), (("steiger_z", "steiger_p"), z)):
        if test is not None:
            found |= dict(zip(names, (test.statistic, test.p), strict=True))
    return found


def _interval(drawn: Floats) -> tuple[float, float]:
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
    return 100 * float(low), 100 * float(high)


@dataclass(frozen=True)
class Evidence:
    """The sentence pairs that runs kept.

    Args:
        pairs: Evaluator → run id → its pairs.
        without: Runs that kept nothing at all.
    """

    pairs: Mapping[str, Mapping[str, RunPairs]]
    without: frozenset[str]

    def compare(self, metric: str, runs: Mapping[int, tuple[Result, Result]]) -> tuple[OnPairs | None, str | None]:
        """Return the comparison of a metric on the same pairs, and why it is missing or lacks seeds.

        Args:
            metric: `evaluator.metric`, or the average.
            runs: Seed → its two runs.
        """
        found: dict[int, list[tuple[RunPairs, RunPairs]]] = {}
        reasons: dict[str, list[str]] = {}
        for seed, (first, second) in runs.items():
            pairs = [self._pairs(name, metric, first, second) for name in _evaluators(metric)]
            reason = next((one for one in pairs if isinstance(one, str)), None)
            if reason is not None:
                reasons.setdefault(reason, []).append(str(seed))
            else:
                found[seed] = [one for one in pairs if not isinstance(one, str)]
        note = "; ".join(
            f"seed {', '.join(seeds)} left out: {reason}" if found else reason for reason, seeds in reasons.items()
        )
        return compare_pairs(found) if found else None, note or None

    def _pairs(self, evaluator: str, metric: str, first: Result, second: Result) -> tuple[RunPairs, RunPairs] | str:
        """Return what two runs kept of an evaluator, or why it cannot be compared."""
        name = RANKED if metric == AVERAGE else metric.rpartition(".")[2]
        kept: list[RunPairs] = []
        for run in (first, second):
            run_id = run.run_id or ""
            if run_id in self.without:
                return f"run {run_id[:8]} kept no numbers of single pairs"
            if (pairs := self.pairs[evaluator].get(run_id)) is None:
                return "no score of sentence pairs"
            if not pairs.explains(run.scores[evaluator][name]):
                return "not Spearman's correlation over all pairs together"
            kept.append(pairs)
        if not kept[0].same_pairs(kept[1]):
            return f"the data of {evaluator} are not the same in both"
        return kept[0], kept[1]


def gather_evidence(
    runs: Sequence[tuple[Result, Mapping[str, Any] | None]], metrics: Sequence[str], resamples: int
) -> Evidence:
    """Read what runs kept, and resample the pairs behind metrics.

    Args:
        runs: Each with its resolved recipe, where that can be read.
        metrics: `evaluator.metric`, or the average.
        resamples: Data sets drawn.
    """
    series = {run.run_id: read_series(folder_of(run.run_id) / SERIES_FOLDER) for run, _ in runs if run.run_id}
    evaluators = dict.fromkeys(name for metric in metrics for name in _evaluators(metric))
    pairs = {}
    for name in evaluators:
        kept = [
            (run.run_id or "", series.get(run.run_id or "", {}), _digest(run, recipe, name)) for run, recipe in runs
        ]
        pairs[name] = resample_runs(kept, name, resamples)
    return Evidence(pairs, frozenset(run.run_id or "" for run, _ in runs if not series.get(run.run_id or "")))


def _digest(run: Result, recipe: Mapping[str, Any] | None, evaluator: str) -> str:
    """Return the digest of the data set that a run's evaluator read; empty where the run does not say."""
    part = (recipe or {}).get("evaluators", {}).get(evaluator, {})
    data = part.get("dataset") or part.get("file")
    return run.fingerprints.get(f"{data}/{part.get('split')}", "")


Finding = Literal["different", "undecided", "equal", "one_seed", "constant", "incomplete", "selecting"]


@dataclass(frozen=True)
class Verdict:
    """Finding and its sentence.

    Args:
        finding: "different" only if the test over seeds rejects equality after all corrections; "undecided" if it does
            not; "equal" if no seed shows a difference; "constant" if every seed shows the same one, so that there is
            nothing to test; "one_seed" without a standard deviation; "incomplete" if planned seeds are missing;
            "selecting" if the metric selected the states.
        sentence: Sentence about the second method.
    """

    finding: Finding
    sentence: str


def verdict(second: str, seeds: Paired, pairs: OnPairs | None, more_is_better: bool, plan: SeedPlan) -> Verdict:
    """Return the conclusion about a metric.

    Args:
        second: Name of the second method.
        seeds: Comparison over the seeds.
        pairs: Comparison on the same sentence pairs, if there is one.
        more_is_better: Whether a higher score is better. If not, it is only called higher.
        plan: Plan of the seeds of both methods.
    """
    finding, text = _finding(second, seeds, ("better", "worse") if more_is_better else ("higher", "lower"), plan)
    return Verdict(finding, text + _pairs_clause(finding, pairs, seeds.difference))


def _finding(second: str, seeds: Paired, words: tuple[str, str], plan: SeedPlan) -> tuple[Finding, str]:
    n, gap, which = len(seeds.seeds), _size(abs(seeds.difference)), words[0 if seeds.difference > 0 else 1]
    if seeds.difference == 0 and not seeds.std:
        return "equal", f"no difference in {'the one seed' if n == 1 else f'any of {n} seeds'}"
    if n == 1:
        return "one_seed", f"not decided: one seed has no standard deviation; {second} is {gap} {which} with it"
    if seeds.constant:
        alike = f"{second} is {gap} {which} with each of {n} seeds"
        return "constant", f"{alike}: the seed has no effect, so there is nothing to test"
    if plan.mode == "incomplete":
        return "incomplete", f"not decided: {plan.text}"
    if seeds.p_adjusted is not None and seeds.p_adjusted < LEVEL:
        test = f"{n} seeds, {plan.text}, {p_text(seeds.p_adjusted)}"
        return "different", f"{second} is {which} by {gap}{_half(seeds)} ({test})"
    if seeds.level == 0:
        return "undecided", f"not tested, because the primary metric shows no difference: {second} is {gap} {which}"
    return "undecided", f"not distinguishable with {n} seeds, {plan.text}: {_undecided(second, seeds, gap, which)}"


def _undecided(second: str, seeds: Paired, gap: str, which: str) -> str:
    text, p = f"{second} is {gap}{_half(seeds)} {which}", seeds.p_in(seeds.mode)
    if p is not None and p < LEVEL:
        return f"{text}; uncorrected {p_text(p)}"
    return text if seeds.seeds_needed is None else f"{text}; {seeds_text(seeds.seeds_needed)} seeds would be needed"


def _half(seeds: Paired) -> str:
    """Return half the interval. Empty if the interval is unbounded."""
    return "" if seeds.low is None or seeds.high is None else f" ± {_size((seeds.high - seeds.low) / 2)}"


def p_text(p: float) -> str:
    """Return "p = 0.031", or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seeds_text(n: int) -> str:
    """Return the seeds needed, marked as an estimate from few seeds."""
    return f"more than {MOST_SEEDS:,}" if n > MOST_SEEDS else f"about {n:,}"


def _size(value: float) -> str:
    """Return two decimals, or more where these would say 0."""
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.1g}"


def _pairs_clause(finding: Finding, pairs: OnPairs | None, difference: float) -> str:
    """Return the clause about the sentence pairs that follows a finding over seeds."""
    if pairs is None or pairs.p_adjusted is None or finding in ("equal", "incomplete"):
        return ""
    separates = pairs.p_adjusted < LEVEL
    if finding == "different":
        if separates and pairs.difference * difference > 0:
            return "; the choice of sentence pairs does not explain it either"
        return "; but the choice of sentence pairs could explain it"
    if finding == "undecided":
        return "; for these very models it is more than the choice of sentence pairs explains" if separates else ""
    than = "more" if separates else "no more"
    return f", {than} than the choice of sentence pairs explains ({p_text(pairs.p_adjusted)})"
