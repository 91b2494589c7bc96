"""Conclusion about one metric of a comparison, in one sentence."""

from __future__ import annotations

from typing import Literal

from cse_cli.analysis.paired_tests import OnPairs
from cse_cli.core.plans import SeedPlan
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired

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
    return finding, text + _pairs_clause(finding, pairs, seeds.difference)


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
    """Return half the interval. Empty if the interval is unbounded."""
    return "" if seeds.low is None or seeds.high is None else f" ± {_size((seeds.high - seeds.low) / 2)}"


def p_text(p: float) -> str:
    """Return "p = 0.031", or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seeds_text(n: int) -> str:
    """Return the seeds needed, marked as an estimate from few seeds."""
    return f"more than {MOST_SEEDS:,}" if n > MOST_SEEDS else f"about {n:,}"


def _size(value: float) -> str:
    """Return two decimals, or one significant digit if these were 0."""
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
        return "; for these trained models, the choice of sentence pairs does not explain it" if separates else ""
    than = "more" if separates else "no more"
    return f", {than} than the choice of sentence pairs explains ({p_text(pairs.p_adjusted)})"
