"""Seeds of an unchanged recipe in the distribution of runs that others published of the same method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.catalog import recipe_facts
from cse_cli.recipe.files import recipe_name, shipped
from registry import papers
from registry.papers import AVERAGE, Reproduction

FEWEST = 20
"""Smallest number of runs for which a percentile is more informative than a count."""
METRIC = "spearman"
"""Metric of every published distribution."""


def compare_with_reproductions(results: Sequence[Result], *, notes: bool = False) -> list[str]:
    """Return lines with the published distribution of a recipe and the position of each of its runs in it.

    Runs with other settings than the shipped recipe's are omitted. `notes` add how the published runs differ.
    """
    unchanged = sorted(filter(_is_as_shipped, results), key=lambda result: result.seed)
    if not unchanged:
        return []
    name = recipe_name(unchanged[0].recipe)
    found = {score: papers.distribution(name, score) for score in (AVERAGE, *STS_TASKS)}
    known = {score: one for score, one in found.items() if one is not None and one.n > 1}
    lines = [line for result in unchanged if (line := _run_line(result, known))]
    return [*_source_lines(known, notes=notes), *lines] if lines else []


def position(value: float, known: Reproduction) -> str:
    """Return the percentile of a score, or the number of runs below it, or whether it is in the range.

    Ties count half, as in the usual percentile rank. Published values have two decimals, so `value` is rounded first.
    """
    score = round(value, 2)
    if score < known.low:
        return f"below all {known.n}"
    if score > known.high:
        return f"above all {known.n}"
    if not known.values:
        return "within their range"
    below = sum(other < score for other in known.values) + sum(other == score for other in known.values) / 2
    if known.n < FEWEST:
        return f"above {below:g} of {known.n}"
    return f"{_ordinal(round(100 * below / known.n))} percentile"


def _is_as_shipped(result: Result) -> bool:
    """Return whether a run has the experiment of a published distribution."""
    name = recipe_name(result.recipe)
    return name in {one.recipe for one in papers.reproductions()} and result.recipe_hash == _shipped(name)


@cache
def _shipped(name: str) -> str:
    """Return the hash of the recipe in this package, not of another file with the same name."""
    return recipe_facts(str(shipped() / f"{name}.toml")).settings


def _source_lines(known: Mapping[str, Reproduction], *, notes: bool) -> Iterator[str]:
    """Yield one line for each source, with its average if it has one."""
    for source in dict.fromkeys(one.source for one in known.values()):
        one = next(one for one in known.values() if one.source == source)
        spread = "" if one.std is None else f" ± {one.std:.2f}"
        numbers = f"{one.score} {one.low:.2f} to {one.high:.2f}, mean {one.mean:.2f}{spread}"
        note = f"; {one.note}" if notes and one.note else ""
        address = source.removeprefix("https://").removeprefix("github.com/")
        yield f"{one.n} independent runs of {one.paper}: {numbers} ({address}{note})"


def _run_line(result: Result, known: Mapping[str, Reproduction]) -> str:
    """Return the position of a run's average, and the tasks outside their range. Empty without a known score."""
    every = {
        score: paper_average(result.scores, STS_TASKS, METRIC)
        if score == AVERAGE
        else result.scores.get(score, {}).get(METRIC)
        for score in known
    }
    values = {score: value for score, value in every.items() if value is not None}
    outside = [score for score, value in values.items() if not known[score].low <= round(value, 2) <= known[score].high]
    shown = [score for score in values if score == AVERAGE or score in outside]
    parts = [f"{score} {values[score]:.2f}, {position(values[score], known[score])}" for score in shown]
    if values.keys() - {AVERAGE} and not set(shown) - {AVERAGE}:
        parts.append("every task within its range")
    return f"seed {result.seed}: {'; '.join(parts)}" if parts else ""


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
