"""What `cse compare` says, as data: what differs in the recipes, and every metric over seeds and on sentence pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.analysis.evidence import (
    Evidence,
    Finding,
    OnPairs,
    find_metrics,
    gather_evidence,
    shared_metrics,
    verdict,
)
from cse_cli.analysis.runs import Change, Method, read_resolved, recipe_changes
from cse_cli.core.formatting import counted
from cse_cli.core.multiple import correct_together
from cse_cli.core.results import Result, main_metric, metric_value
from cse_cli.core.stats import LEVEL, Paired, compare_paired, looks_text, p_at_any_look
from registry.errors import CseError
from registry.papers import AVERAGE

RESAMPLES = 2000
Couple = tuple[Method, Method]
Recipes = Mapping[str, Mapping[str, Any] | None]
"""Letter → the resolved recipe that the method's latest run recorded; None where it cannot be read."""


class MethodSummary(BaseModel):
    """One of the methods compared, as `Method`."""

    model_config = ConfigDict(frozen=True)

    letter: str
    name: str
    recipe: str
    recipe_hash: str
    model: str
    seeds: tuple[int, ...]
    run_ids: tuple[str | None, ...]
    notes: tuple[str, ...]


class MetricComparison(BaseModel):
    """One metric of one comparison.

    Args:
        more_is_better: Whether higher is known to be better; where it is not, nothing is called better.
        pairs_note: Why the sentence pairs are not compared, or not of every seed.
        finding: See `evidence.Verdict`.
    """

    model_config = ConfigDict(frozen=True)

    metric: str
    more_is_better: bool
    over_seeds: Paired
    on_pairs: OnPairs | None = None
    pairs_note: str | None = None
    finding: Finding = "undecided"
    verdict: str = ""


class Comparison(BaseModel):
    """Two methods; differences are the second's less the first's.

    Args:
        left_out: Letter → seeds that the other does not have.
        primary: Of the metrics, what the methods are judged by: tested first, the others only where it differs.
        headline: What may be said of it, in one sentence, and how the other metrics were treated.
    """

    model_config = ConfigDict(frozen=True)

    first: str
    second: str
    seeds: tuple[int, ...]
    left_out: dict[str, tuple[int, ...]]
    metrics: tuple[MetricComparison, ...]
    primary: str = ""
    headline: str = ""

    @property
    def main(self) -> MetricComparison:
        """The comparison by the primary metric."""
        return next(one for one in self.metrics if one.metric == self.primary)


class ComparisonDocument(BaseModel):
    """All that `cse compare` says.

    Args:
        changes: Keys of the resolved recipes that are not the same in all; None where a recipe cannot be read.
        circumstances: What else was not the same.
        corrected_for: Comparisons made together; the correction is for those of them that have a p.
        planned: Seeds that were planned before the first was looked at; None where any number may have been.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[2] = 2
    sides: tuple[MethodSummary, ...]
    changes: tuple[Change, ...] | None
    circumstances: tuple[Change, ...]
    resamples: int
    corrected_for: int
    planned: int | None = None
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()


def compare(
    methods: Sequence[Method],
    metrics: Sequence[str] = (),
    resamples: int = RESAMPLES,
    *,
    pairwise: bool = False,
    planned: int | None = None,
) -> ComparisonDocument:
    """Compare each method with the first, or every two.

    Args:
        methods: Two or more, as `find_methods` returns them.
        metrics: None means each evaluator's main metric, and the average where it can be made.
        resamples: Data sets drawn from the sentence pairs.
        pairwise: Compare every two.
        planned: Seeds that were planned before the first was looked at: one test with all of them, which needs no
            correction for looks. None means that seeds may have been added after looking.

    Raises:
        CseError: Two have no seed in common, another number than was planned, or nothing to compare.
    """
    couples = list(combinations(methods, 2)) if pairwise else [(methods[0], method) for method in methods[1:]]
    for couple in couples:
        _check_seeds(couple, planned)
    recipes: Recipes = {method.letter: read_resolved(method.latest.run_id) for method in methods}
    chosen = find_metrics(metrics, [run for method in methods for run in method.runs.values()])
    of_couples = [chosen or _shared_metrics(couple) for couple in couples]
    evidence = _gather(couples, recipes, [metric for of_couple in of_couples for metric in of_couple], resamples)
    plain = [_compare(couple, found, evidence) for couple, found in zip(couples, of_couples, strict=True)]
    known = [recipe for recipe in recipes.values() if recipe is not None]
    return ComparisonDocument(
        sides=tuple(map(_summary, methods)),
        changes=tuple(recipe_changes(known)) if len(known) == len(methods) else None,
        circumstances=tuple(_circumstances(methods)),
        resamples=resamples,
        corrected_for=len(couples),
        planned=planned,
        comparisons=tuple(_judge(plain, {method.letter: method.name for method in methods}, planned)),
        notes=tuple(_notes(methods, recipes)),
    )


def _seeds(couple: Couple) -> list[int]:
    return sorted(couple[0].runs.keys() & couple[1].runs.keys())


def _check_seeds(couple: Couple, planned: int | None) -> None:
    if not (shared := _seeds(couple)):
        has = " and ".join(f"{method.name} has {', '.join(map(str, method.runs))}" for method in couple)
        missing = next(iter(couple[0].runs))
        raise CseError(
            f"no seed in common: {has}; runs are compared seed by seed",
            f"`cse run {couple[1].latest.recipe} --seed {missing}` makes one that can be",
        )
    if planned is not None and len(shared) != planned:
        which = " and ".join(method.name for method in couple)
        few = len(shared) < planned
        raise CseError(
            f"--planned {planned}: {which} share {counted(len(shared), 'seed')}, "
            + ("and a look before the last is one more look" if few else "so some were added to the plan"),
            "run the others first, or leave out --planned" if few else "leave out --planned: seeds may then be added",
        )


def _shared_metrics(couple: Couple) -> list[str]:
    found = shared_metrics([method.runs[seed] for method in couple for seed in _seeds(couple)])
    if not found:
        scored = " and ".join(f"{method.name} has {', '.join(method.latest.scores) or 'none'}" for method in couple)
        raise CseError(
            f"no metric in common: {scored}",
            "name evaluators alike in both recipes, or give a metric of both with --metric",
        )
    return found


def _gather(couples: Sequence[Couple], recipes: Recipes, metrics: Sequence[str], resamples: int) -> Evidence:
    runs: dict[str | None, tuple[Result, Mapping[str, Any] | None]] = {}
    for couple in couples:
        for method in couple:
            of_method = [method.runs[seed] for seed in _seeds(couple)]
            runs |= {run.run_id: (run, recipes[method.letter]) for run in of_method}
    return gather_evidence(list(runs.values()), metrics, resamples)


def _summary(method: Method) -> MethodSummary:
    latest = method.latest
    return MethodSummary(
        letter=method.letter,
        name=method.name,
        recipe=latest.recipe,
        recipe_hash=latest.recipe_hash,
        model=latest.model,
        seeds=tuple(method.runs),
        run_ids=tuple(run.run_id for run in method.runs.values()),
        notes=method.notes,
    )


def _compare(couple: Couple, metrics: Sequence[str], evidence: Evidence) -> Comparison:
    seeds = _seeds(couple)
    left_out = {method.letter: tuple(sorted(method.runs.keys() - set(seeds))) for method in couple}
    judged_by = [main_metric(method.latest) for method in couple]
    return Comparison(
        first=couple[0].letter,
        second=couple[1].letter,
        seeds=tuple(seeds),
        left_out={letter: others for letter, others in left_out.items() if others},
        metrics=tuple(_compare_metric(metric, couple, evidence) for metric in metrics),
        primary=next((metric for metric in judged_by if metric in metrics), metrics[0]) or "",
    )


def _compare_metric(metric: str, couple: Couple, evidence: Evidence) -> MetricComparison:
    first, second = couple
    scores: dict[int, tuple[float, float]] = {}
    for seed in _seeds(couple):
        a, b = (metric_value(method.runs[seed].scores, metric) for method in couple)
        if a is not None and b is not None:
            scores[seed] = (a, b)
    if not scores:
        raise CseError(
            f"{first.name} and {second.name} share no seed that has '{metric}' in both",
            "leave out --metric to see what they share",
        )
    on_pairs, note = evidence.compare(metric, {seed: (first.runs[seed], second.runs[seed]) for seed in scores})
    maximised = {run.select.rpartition(".")[2] for run in (first.latest, second.latest) if run.select}
    return MetricComparison(
        metric=metric,
        # What a recipe selects by is maximised; a correlation with gold scores is better when higher.
        more_is_better=metric == AVERAGE or on_pairs is not None or metric.rpartition(".")[2] in maximised,
        over_seeds=compare_paired(list(scores), [a for a, _ in scores.values()], [b for _, b in scores.values()]),
        on_pairs=on_pairs,
        pairs_note=note,
    )


def _judge(comparisons: Sequence[Comparison], names: Mapping[str, str], planned: int | None) -> Iterable[Comparison]:
    """Yield the comparisons with p-values corrected together, and with what these allow to say."""
    seeds = _corrected(comparisons, lambda one: _p_over_seeds(one.over_seeds, planned))
    pairs = _corrected(comparisons, lambda one: None if one.on_pairs is None else one.on_pairs.p)
    for place, comparison in enumerate(comparisons):
        judged: list[MetricComparison] = []
        headline = ""
        for one in comparison.metrics:
            over_seeds = one.over_seeds.model_copy(update={"p_adjusted": seeds[place, one.metric]})
            on_pairs = one.on_pairs and one.on_pairs.model_copy(update={"p_adjusted": pairs[place, one.metric]})
            n = len(over_seeds.seeds)
            looks = looks_text(n, planned=n == planned)
            said = verdict(comparison.second, over_seeds, on_pairs, one.more_is_better, looks)
            update = {"over_seeds": over_seeds, "on_pairs": on_pairs, "finding": said.finding, "verdict": said.sentence}
            judged.append(one.model_copy(update=update))
            if one.metric == comparison.primary:
                named = verdict(names[comparison.second], over_seeds, on_pairs, one.more_is_better, looks)
                headline = f"{one.metric}, against {names[comparison.first]}: {named.sentence}"
        headline += _others_clause(comparison.primary, seeds[place, comparison.primary], len(judged) - 1)
        yield comparison.model_copy(update={"metrics": tuple(judged), "headline": headline})


def _p_over_seeds(seeds: Paired, planned: int | None) -> float | None:
    """Return the p-value of a metric by itself, for the one look that was planned or for any number of looks."""
    n = len(seeds.seeds)
    return seeds.p if seeds.p is None or n == planned else p_at_any_look(seeds.p, n)


def _others_clause(primary: str, p: float | None, others: int) -> str:
    """Return how the metrics besides the primary one are treated."""
    if not others or p is None:
        return ""
    rest = "the other one is" if others == 1 else f"the {others} others are"
    if p < LEVEL:
        return f". Primary metric: {primary}; {rest} corrected together by Holm's procedure"
    return f". Primary metric: {primary}; as it shows no difference, {rest} not tested"


def _corrected(
    comparisons: Sequence[Comparison], p_of: Callable[[MetricComparison], float | None]
) -> dict[tuple[int, str], float | None]:
    """Return place of a comparison and metric → p corrected for all metrics of all comparisons, the primary first."""
    ordered = [sorted(one.metrics, key=lambda m: m.metric != one.primary) for one in comparisons]
    corrected = correct_together([[p_of(metric) for metric in metrics] for metrics in ordered])
    return {
        (place, metric.metric): p
        for place, (metrics, values) in enumerate(zip(ordered, corrected, strict=True))
        for metric, p in zip(metrics, values, strict=True)
    }


def _circumstances(methods: Sequence[Method]) -> list[Change]:
    """Return what else was not the same: device, precision, versions, text and weights behind an equal name."""
    values: dict[str, list[str]] = {}
    is_known = all(run.base_sha256 for method in methods for run in method.runs.values())
    of_one_name = is_known and len({run.model for method in methods for run in method.runs.values()}) == 1
    for method in methods:
        runs = method.runs.values()
        of_method = {
            "device": {run.device for run in runs},
            "precision": {run.precision for run in runs},
            "torch": {run.versions.torch for run in runs},
            "transformers": {run.versions.transformers for run in runs},
            "training text": {run.fingerprints.get("training", "none")[:12] for run in runs},
            "weights at the start": {(run.base_sha256 or "")[:12] for run in runs if of_one_name},
        }
        for name, found in of_method.items():
            values.setdefault(name, []).append(", ".join(sorted(found)))
    return [Change(key=name, values=tuple(found)) for name, found in values.items() if len(set(found)) > 1]


def _notes(methods: Sequence[Method], recipes: Recipes) -> Iterable[str]:
    for method in methods:
        yield from (f"{method.letter}: {note}" for note in method.notes)
        if any(run.test_selected for run in method.runs.values()):
            yield f"{method.letter}: states were chosen on a test split, so its scores are optimistic"
        if recipes[method.letter] is None:
            yield f"{method.letter}: the recipe it recorded cannot be read"
    if selected := sorted({run.select for method in methods for run in method.runs.values() if run.select}):
        yield f"{', '.join(selected)} chose the states that are scored: optimistic"
