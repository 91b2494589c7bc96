"""On the same sentence pairs: would other pairs of the same kind tell the same difference?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict

from cse_cli.compare.correlated import steiger, williams
from cse_cli.compare.resampling import Floats, correlations, resampled
from cse_cli.compare.seeds import LEVEL
from registry.catalogue.pairs import ROWS

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
        draws = resampled(gold, cosines, resamples, (_SEED, crc32(evaluator.encode())))
        for (run_id, digest, _, cosine), rho, drawn in zip(members, correlations(gold, cosines), draws, strict=True):
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
    between = float(correlations(first.cosine, [second.cosine])[0])
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
