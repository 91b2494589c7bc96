"""What the tests of one metric allow to say, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cse_cli.compare.pairs import OnPairs
from cse_cli.compare.seeds import LEVEL, MOST_SEEDS, Paired

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
