"""Sides → document: every metric over the seeds they share, and on the same sentence pairs.

What differs in the resolved recipes of the runs compared.

What `cse compare` says, as data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.analysis import evidence as names
from cse_cli.analysis.evidence import Evidence, Finding, OnPairs, gather, verdict
from cse_cli.analysis.runs import Side
from cse_cli.core.results import Result
from cse_cli.core.stats import Paired, holm, paired
from cse_cli.recipe.schema import data_identity
from cse_cli.tracking import reader
from registry.errors import CseError

RESAMPLES = 2000
Couple = tuple[Side, Side]
Place = tuple[str, str, str]
"""First letter, second letter, metric."""


def compare(
    sides: Sequence[Side], wanted: Sequence[str] = (), resamples: int = RESAMPLES, *, pairwise: bool = False
) -> Document:
    """Compare each side with the first, or every two.

    Args:
        sides: Two or more, as `find_sides` returns them.
        wanted: Metrics; none means each evaluator's main metric, and the average where it can be made.
        resamples: Data sets drawn from the sentence pairs.
        pairwise: Compare every two.

    Raises:
        CseError: Two have no seed in common, or nothing to compare.
    """
    couples = list(combinations(sides, 2)) if pairwise else [(sides[0], side) for side in sides[1:]]
    for couple in couples:
        _demand_shared(couple)
    recipes = {side.letter: resolved(side) for side in sides}
    chosen = names.asked(wanted, [run for side in sides for run in side.runs.values()])
    measured = [chosen or _shared(couple) for couple in couples]
    evidence = gather(
        _with_recipes(couples, recipes), names.evaluators([m for found in measured for m in found]), resamples
    )
    plain = [_comparison(couple, found, evidence) for couple, found in zip(couples, measured, strict=True)]
    known = [recipe for recipe in recipes.values() if recipe is not None]
    return Document(
        sides=tuple(_side(side) for side in sides),
        changes=tuple(changes(known)) if len(known) == len(sides) else None,
        circumstances=tuple(circumstances(sides)),
        resamples=resamples,
        corrected_for=len(couples),
        comparisons=tuple(_judged(plain)),
        notes=tuple(_notes(sides, recipes)),
    )


def _seeds(couple: Couple) -> list[int]:
    return sorted(couple[0].runs.keys() & couple[1].runs.keys())


def _runs(couple: Couple) -> list[Result]:
    return [side.runs[seed] for side in couple for seed in _seeds(couple)]


def _with_recipes(couples: Sequence[Couple], recipes: Mapping[str, Any]) -> list[tuple[Result, Any]]:
    """Return every run that is compared, once, with the recipe its side recorded."""
    found = {
        side.runs[seed].run_id: (side.runs[seed], recipes[side.letter])
        for couple in couples
        for side in couple
        for seed in _seeds(couple)
    }
    return list(found.values())


def _shared(couple: Couple) -> list[str]:
    """Return the metrics of two sides.

    Raises:
        CseError: They have none in common.
    """
    found = names.shared(_runs(couple))
    if not found:
        scored = " and ".join(f"{side.name} has {', '.join(side.latest.scores) or 'none'}" for side in couple)
        raise CseError(
            f"no metric in common: {scored}",
            "name evaluators alike in both recipes, or give a metric of both with --metric",
        )
    return found


def _demand_shared(couple: Couple) -> None:
    if not _seeds(couple):
        has = " and ".join(f"{side.name} has {', '.join(map(str, side.runs))}" for side in couple)
        missing = next(iter(couple[0].runs))
        raise CseError(
            f"no seed in common: {has}; runs are compared seed by seed",
            f"`cse run {couple[1].latest.recipe} --seed {missing}` makes one that can be",
        )


def _side(side: Side) -> SideDocument:
    latest = side.latest
    return SideDocument(
        letter=side.letter,
        name=side.name,
        recipe=latest.recipe,
        recipe_hash=latest.recipe_hash,
        model=latest.model,
        seeds=tuple(side.runs),
        run_ids=tuple(run.run_id for run in side.runs.values()),
        notes=side.notes,
    )


def _comparison(couple: Couple, metrics: Sequence[str], evidence: Evidence) -> Comparison:
    seeds = _seeds(couple)
    left_out = {side.letter: tuple(sorted(side.runs.keys() - set(seeds))) for side in couple}
    return Comparison(
        first=couple[0].letter,
        second=couple[1].letter,
        seeds=tuple(seeds),
        left_out={letter: others for letter, others in left_out.items() if others},
        metrics=tuple(_metric(metric, couple, evidence) for metric in metrics),
    )


def _metric(metric: str, couple: Couple, evidence: Evidence) -> MetricDocument:
    first, second = couple
    scores: dict[int, tuple[float, float]] = {}
    for seed in _seeds(couple):
        a, b = names.value(first.runs[seed], metric), names.value(second.runs[seed], metric)
        if a is not None and b is not None:
            scores[seed] = (a, b)
    if not scores:
        raise CseError(
            f"{first.name} and {second.name} share no seed that has '{metric}' in both",
            "leave out --metric to see what they share",
        )
    on_pairs, note = evidence.compared(metric, {seed: (first.runs[seed], second.runs[seed]) for seed in scores})
    maximised = {run.select.rpartition(".")[2] for run in (first.latest, second.latest) if run.select}
    return MetricDocument(
        metric=metric,
        # What a recipe selects by is maximised; a correlation with gold scores is better when higher.
        more_is_better=metric == names.AVERAGE or on_pairs is not None or metric.rpartition(".")[2] in maximised,
        over_seeds=paired(list(scores), [a for a, _ in scores.values()], [b for _, b in scores.values()]),
        on_pairs=on_pairs,
        pairs_note=note,
    )


def _judged(comparisons: Sequence[Comparison]) -> Iterable[Comparison]:
    """Yield the comparisons with corrected p-values, and with what these allow to say."""
    over, on = _corrected(comparisons, "over_seeds"), _corrected(comparisons, "on_pairs")
    for comparison in comparisons:
        judged: list[MetricDocument] = []
        for one in comparison.metrics:
            place = (comparison.first, comparison.second, one.metric)
            p, tests = over.get(place, (None, 1))
            seeds = one.over_seeds.model_copy(update={"p_adjusted": p})
            pairs = one.on_pairs and one.on_pairs.model_copy(update={"p_adjusted": on[place][0]})
            said = verdict(comparison.second, seeds, pairs, one.more_is_better, tests)
            update = {"over_seeds": seeds, "on_pairs": pairs, "finding": said.finding, "verdict": said.sentence}
            judged.append(one.model_copy(update=update))
        yield comparison.model_copy(update={"metrics": tuple(judged)})


def _corrected(comparisons: Sequence[Comparison], which: str) -> dict[Place, tuple[float, int]]:
    """Return Holm's p over the comparisons of a metric, and how many of them have one."""
    found: dict[str, dict[Place, float]] = {}
    for comparison in comparisons:
        for one in comparison.metrics:
            test = getattr(one, which)
            if test is not None and test.p is not None:
                found.setdefault(one.metric, {})[comparison.first, comparison.second, one.metric] = test.p
    return {
        place: (p, len(tests))
        for tests in found.values()
        for place, p in zip(tests, holm(list(tests.values())), strict=True)
    }


def _notes(sides: Sequence[Side], recipes: Mapping[str, Any]) -> Iterable[str]:
    for side in sides:
        yield from (f"{side.letter}: {note}" for note in side.notes)
        if any(run.test_selected for run in side.runs.values()):
            yield f"{side.letter}: states were chosen on a test split, so its scores are optimistic"
        if recipes[side.letter] is None:
            yield f"{side.letter}: the recipe it recorded cannot be read"
    if selected := sorted({run.select for side in sides for run in side.runs.values() if run.select}):
        yield f"{', '.join(selected)} chose the states that are scored: optimistic"


_PROSE = frozenset({"title", "description", "paper", "tune", "schema"})
_ABSENT = object()


class Change(BaseModel):
    """One key that is not the same everywhere.

    Args:
        key: Dotted path; a table that is missing somewhere stands as a whole.
        values: Of each of those compared, in their order; None where the key is not set.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    values: tuple[Any, ...]


def changes(recipes: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the keys in which resolved recipes differ, in their order, seed and prose left out."""
    return _changes([_identity(recipe) for recipe in recipes], "")


def resolved(side: Side) -> dict[str, Any] | None:
    """Return the resolved recipe that a side's latest run recorded; None where it cannot be read."""
    text = reader.text_of(side.latest.run_id or "", "resolved.toml")
    try:
        return None if text is None else tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def circumstances(sides: Sequence[Side]) -> list[Change]:
    """Return what else was not the same: device, precision, versions, the training text behind an equal name."""
    told: dict[str, list[str]] = {}
    for side in sides:
        for name, values in _circumstances(list(side.runs.values())).items():
            told.setdefault(name, []).append(", ".join(sorted(values)))
    return [Change(key=name, values=tuple(values)) for name, values in told.items() if len(set(values)) > 1]


def _circumstances(runs: Sequence[Result]) -> dict[str, set[str]]:
    return {
        "device": {run.device for run in runs},
        "precision": {run.precision for run in runs},
        "torch": {run.versions.torch for run in runs},
        "transformers": {run.versions.transformers for run in runs},
        "training text": {run.fingerprints.get("training", "none")[:12] for run in runs},
    }


def _identity(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a recipe the experiment it is, as `Recipe.hash()` has it."""
    kept = {key: value for key, value in recipe.items() if key not in _PROSE}
    kept["train"] = {key: value for key, value in kept.get("train", {}).items() if key != "seed"}
    kept["data"] = data_identity(kept.get("data", {}))
    return kept


def _changes(tables: Sequence[Mapping[str, Any]], prefix: str) -> list[Change]:
    found: list[Change] = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [_named(table.get(key, _ABSENT)) for table in tables]
        if all(isinstance(value, Mapping) for value in values):
            found += _changes(values, f"{prefix}{key}.")
        elif any(value != values[0] for value in values):
            found.append(Change(key=f"{prefix}{key}", values=tuple(None if v is _ABSENT else v for v in values)))
    return found


def _named(value: Any) -> Any:
    """Return a list of components as a table by their names, as `--set` calls them; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "name" in part for part in value):
        names = [part["name"] for part in value]
        if len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


class SideDocument(BaseModel):
    """One of those compared, as `Side`."""

    model_config = ConfigDict(frozen=True)

    letter: str
    name: str
    recipe: str
    recipe_hash: str
    model: str
    seeds: tuple[int, ...]
    run_ids: tuple[str | None, ...]
    notes: tuple[str, ...]


class MetricDocument(BaseModel):
    """One metric of one comparison.

    Args:
        more_is_better: Whether higher is known to be better; where it is not, nothing is called better.
        pairs_note: Why the sentence pairs are not compared, or not of every seed.
        finding: See `verdict.Verdict`.
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
    """Two of those compared; differences are the second's less the first's.

    Args:
        left_out: Letter → seeds that the other does not have.
    """

    model_config = ConfigDict(frozen=True)

    first: str
    second: str
    seeds: tuple[int, ...]
    left_out: dict[str, tuple[int, ...]]
    metrics: tuple[MetricDocument, ...]


class Document(BaseModel):
    """All that `cse compare` says.

    Args:
        changes: Keys of the resolved recipes that are not the same in all; None where a recipe cannot be read.
        circumstances: What else was not the same.
        corrected_for: Comparisons made together; Holm's correction is for those of them that have a p.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    sides: tuple[SideDocument, ...]
    changes: tuple[Change, ...] | None
    circumstances: tuple[Change, ...]
    resamples: int
    corrected_for: int
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
