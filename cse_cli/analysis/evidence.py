"""Which numbers of two runs can be compared, and what they are called.

The sentence pairs that runs kept, and which of them may be put beside each other.

On the same sentence pairs: would other pairs of the same kind tell the same difference?

What the tests of one metric allow to say, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict

from cse_cli.core.results import STS_TASKS, Result
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired, steiger, williams
from cse_cli.tracking import reader
from registry.catalogue.pairs import ROWS
from registry.errors import UnknownNameError, suggestion
from registry.statistics import Floats, resampled_spearman, spearman

AVERAGE = "avg"
"""The mean of the seven English sets."""
RANKED = "spearman"
"""Metric of the seven sets in every table."""


def value(result: Result, metric: str) -> float | None:
    """Return a run's `evaluator.metric`, or its average as the papers make it: of scores rounded to two decimals."""
    if metric == AVERAGE:
        found = [result.scores.get(name, {}).get(RANKED) for name in STS_TASKS]
        known = [round(score, 2) for score in found if score is not None]
        return fmean(known) if len(known) == len(STS_TASKS) else None
    evaluator, _, name = metric.rpartition(".")
    return result.scores.get(evaluator, {}).get(name)


def shared(runs: Sequence[Result]) -> list[str]:
    """Return each evaluator's main metric that all runs have, in their order, then the average."""
    # Evaluators report the metric they are known by first.
    leading = [f"{name}.{next(iter(scores))}" for name, scores in runs[0].scores.items() if scores]
    return [metric for metric in [*leading, AVERAGE] if all(value(run, metric) is not None for run in runs)]


def asked(names: Sequence[str], runs: Sequence[Result]) -> list[str]:
    """Return the metrics that names mean: `evaluator.metric`, an evaluator for its main metric, or the average.

    Raises:
        UnknownNameError: No run has it.
    """
    every = {f"{name}.{metric}" for run in runs for name, scores in run.scores.items() for metric in scores}
    every |= {AVERAGE for run in runs if value(run, AVERAGE) is not None}
    main = {name: f"{name}.{next(iter(scores))}" for run in runs for name, scores in run.scores.items() if scores}
    found: list[str] = []
    for name in names:
        metric = main.get(name, name)
        if metric not in every:
            raise UnknownNameError(
                f"no run has metric '{name}'.{suggestion(name, [*main, *sorted(every)])}",
                f"known evaluators: {', '.join(main)}; a metric is evaluator.metric, or {AVERAGE}",
            )
        found.append(metric)
    return list(dict.fromkeys(found))


def evaluators(metrics: Sequence[str]) -> list[str]:
    """Return the evaluators whose pairs stand behind metrics."""
    names = [name for m in metrics for name in (STS_TASKS if m == AVERAGE else (m.rpartition(".")[0],))]
    return list(dict.fromkeys(names))


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


_SEED = 0
_SAME = 1e-6
"""Points by which a score may differ from 100 · ρ of its pairs and be that ρ."""


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
        p_adjusted: After Holm's correction for the comparisons of this metric made together.
        of_seeds: Each seed by itself; these tests share their pairs, so their p-values are not to be joined.
    """

    model_config = ConfigDict(frozen=True)

    pairs: int
    resamples: int
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    of_seeds: tuple[OfSeed, ...]


@dataclass(frozen=True)
class Kept:
    """What one run kept of one evaluator's pairs.

    Args:
        digest: Of the data set's content, where the run says so; else empty.
        rho: Of the pairs as they are.
        draws: (resamples,) ρ of the resampled pairs.
    """

    digest: str
    gold: Floats
    cosine: Floats
    rho: float
    draws: Floats

    def same_pairs(self, other: Kept) -> bool:
        """Tell whether position i is the same pair in both."""
        # Digests were of files before they were of rows: of one kind of each, nothing follows.
        of_a_kind = self.digest.startswith(ROWS) == other.digest.startswith(ROWS)
        contradict = self.digest and other.digest and of_a_kind and self.digest != other.digest
        return not contradict and np.array_equal(self.gold, other.gold)


Series = Mapping[str, Mapping[str, Any]]


def kept(runs: Sequence[tuple[str, Series, str]], evaluator: str, resamples: int) -> dict[str, Kept]:
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
    found: dict[str, Kept] = {}
    for members in groups.values():
        gold, cosines = members[0][2], [cosine for *_, cosine in members]
        # Of one evaluator the same draws every time; of two evaluators independent ones.
        rng = np.random.default_rng((_SEED, crc32(evaluator.encode())))
        draws = resampled_spearman(gold, cosines, resamples, rng)
        for (run_id, digest, _, cosine), rho, drawn in zip(members, spearman(gold, cosines), draws, strict=True):
            found[run_id] = Kept(digest, gold, cosine, float(rho), drawn)
    return found


def one_correlation(run: Kept, score: float) -> bool:
    """Tell whether a score is 100 · ρ over all pairs together, not a mean over subsets or another metric."""
    return abs(100 * run.rho - score) < _SAME


def on_pairs(seeds: Sequence[int], first: Sequence[Kept], second: Sequence[Kept]) -> OnPairs:
    """Compare models that belong together by position on the pairs of one evaluator."""
    of_seeds = [_of_seed(seed, a, b) for seed, a, b in zip(seeds, first, second, strict=True)]
    drawn = np.mean([b.draws - a.draws for a, b in zip(first, second, strict=True)], axis=0)
    return _joined(of_seeds, drawn, len(first[0].gold))


def on_average(seeds: Sequence[int], first: Sequence[Sequence[Kept]], second: Sequence[Sequence[Kept]]) -> OnPairs:
    """Compare models by the mean over evaluators, each resampled by itself.

    Args:
        seeds: One for each member of `first` and of `second`.
        first: Of each seed, the pairs of every evaluator.
        second: The same of the other method.
    """
    of_seeds: list[OfSeed] = []
    every: list[Floats] = []
    for seed, ones, others in zip(seeds, first, second, strict=True):
        drawn = np.mean([b.draws - a.draws for a, b in zip(ones, others, strict=True)], axis=0)
        difference = 100 * float(np.mean([b.rho - a.rho for a, b in zip(ones, others, strict=True)]))
        low, high = _ends(drawn)
        of_seeds.append(OfSeed(seed=seed, difference=difference, low=low, high=high))
        every.append(drawn)
    return _joined(of_seeds, np.mean(every, axis=0), sum(len(one.gold) for one in first[0]))


def _of_seed(seed: int, first: Kept, second: Kept) -> OfSeed:
    low, high = _ends(second.draws - first.draws)
    between = float(spearman(first.cosine, [second.cosine])[0])
    correlated = (second.rho, first.rho, between, len(first.gold))
    t, z = williams(*correlated), steiger(*correlated)
    return OfSeed(
        seed=seed,
        difference=100 * (second.rho - first.rho),
        low=low,
        high=high,
        between=between,
        williams_t=None if t is None else t.statistic,
        williams_p=None if t is None else t.p,
        steiger_z=None if z is None else z.statistic,
        steiger_p=None if z is None else z.p,
    )


def _joined(of_seeds: Sequence[OfSeed], drawn: Floats, pairs: int) -> OnPairs:
    low, high = _ends(drawn)
    # The observed data set counts as one more on either side, so that no finite number of resamples gives 0.
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
    difference = float(np.mean([one.difference for one in of_seeds]))
    return OnPairs(
        pairs=pairs, resamples=len(drawn), difference=difference, low=low, high=high, p=p, p_adjusted=p,
        of_seeds=tuple(of_seeds),
    )  # fmt: skip


def _ends(drawn: Floats) -> tuple[float, float]:
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
    return 100 * float(low), 100 * float(high)


Finding = Literal["different", "undecided", "equal", "one_seed", "constant"]


@dataclass(frozen=True)
class Verdict:
    """A finding and its sentence.

    Args:
        finding: "different" where the paired t-test over seeds rejects equality after Holm's correction, and never
            else; "undecided" where it does not; "equal" where no seed shows a difference; "constant" where every seed
            shows the same one, so that seeds test nothing; "one_seed" where there is no spread to test with.
        sentence: The second of the two is its subject.
    """

    finding: Finding
    sentence: str


def verdict(second: str, seeds: Paired, pairs: OnPairs | None, more_is_better: bool, tests: int = 1) -> Verdict:
    """Return what may be said of a metric.

    Args:
        second: What the second of the two is called.
        seeds: Over the seeds.
        pairs: On the same sentence pairs, where there are any.
        more_is_better: Whether the higher score is the better one; else it is only called higher.
        tests: Comparisons of this metric made together, for which the p-values are corrected.
    """
    gap = _size(abs(seeds.difference))
    up, down = ("better", "worse") if more_is_better else ("higher", "lower")
    which = up if seeds.difference > 0 else down
    n = len(seeds.seeds)
    if seeds.difference == 0 and not seeds.std:
        return Verdict("equal", f"no difference in {_count(n, 'seed')}")
    if n == 1:
        text = f"not decided: one seed has no spread; {second} is {gap} {which} with it"
        return Verdict("one_seed", text + _only_pairs(pairs))
    if seeds.constant:
        text = (
            f"{second} is {gap} {which} with each of {n} seeds alike: the seed changes nothing, so seeds test nothing"
        )
        return Verdict("constant", text + _only_pairs(pairs))
    half = ((seeds.high or 0.0) - (seeds.low or 0.0)) / 2
    if seeds.p_adjusted is not None and seeds.p_adjusted < LEVEL:
        text = f"{second} is {which} by {gap} ± {_size(half)} ({n} seeds, {shown_p(seeds.p_adjusted)})"
        return Verdict("different", text + _pairs_too(pairs, seeds.difference))
    text = f"not distinguishable with {n} seeds: {second} is {gap} ± {_size(half)} {which}"
    if seeds.p is not None and seeds.p < LEVEL:
        text += f"; it would be by itself ({shown_p(seeds.p)}), not as one of {tests} comparisons"
    elif seeds.seeds_needed is not None:
        text += f"; {shown_seeds(seeds.seeds_needed)} seeds would be needed"
    return Verdict("undecided", text + _models_only(pairs))


def shown_p(p: float) -> str:
    """Return "p = 0.031", or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def shown_seeds(n: int) -> str:
    """Return the seeds needed as an estimate: it is made from the few seeds there are."""
    return f"more than {MOST_SEEDS:,}" if n > MOST_SEEDS else f"about {n:,}"


def _size(value: float) -> str:
    """Return two decimals, or more where these would say 0."""
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.1g}"


def _separates(pairs: OnPairs) -> bool:
    return pairs.p_adjusted < LEVEL


def _pairs_too(pairs: OnPairs | None, difference: float) -> str:
    if pairs is None:
        return ""
    if _separates(pairs) and pairs.difference * difference > 0:
        return "; the choice of sentence pairs does not explain it either"
    return "; but the choice of sentence pairs could explain it"


def _models_only(pairs: OnPairs | None) -> str:
    if pairs is None or not _separates(pairs):
        return ""
    return "; for these very models it is more than the choice of sentence pairs explains"


def _only_pairs(pairs: OnPairs | None) -> str:
    if pairs is None:
        return ""
    than = "more" if _separates(pairs) else "no more"
    return f", {than} than the choice of sentence pairs explains ({shown_p(pairs.p_adjusted)})"


def _count(n: int, what: str) -> str:
    return f"the one {what}" if n == 1 else f"any of {n} {what}s"
