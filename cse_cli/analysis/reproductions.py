"""Where seeds of an unchanged recipe fall among the runs that others published of the same method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from cse_cli.core.results import STS_TASKS, Result, average
from cse_cli.recipe.files import recipe_name
from registry import papers
from registry.papers import AVERAGE, Reproduction

FEWEST = 20
"""Runs below which a percentile says less than a count."""
METRIC = "spearman"
"""Of every published distribution."""


def told(results: Sequence[Result], *, notes: bool = False) -> list[str]:
    """Return what is known of a recipe's distribution and where each run falls in it; nothing where none is known.

    Args:
        results: Runs of one recipe. A run with other settings than the shipped recipe's says nothing about it.
        notes: Say how the published runs differ from the recipe.
    """
    fitting = [result for result in results if _is_as_shipped(result)]
    if not fitting:
        return []
    known = _known(recipe_name(fitting[0].recipe))
    lines = [line for result in sorted(fitting, key=lambda r: r.seed) for line in _of_run(result, known)]
    return [*_heads(known, notes=notes), *lines] if lines else []


def place(value: float, known: Reproduction) -> str:
    """Return in words where a score falls: its percentile, how many runs are below it, or whether it is in the range.

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
    """Tell whether a run is of the very experiment that a published distribution is about."""
    name = recipe_name(result.recipe)
    return name in {one.recipe for one in papers.reproductions()} and result.recipe_hash == _shipped(name)


@cache
def _shipped(name: str) -> str | None:
    """Return the hash of the recipe that came with this package: a file of the same name elsewhere may say anything."""
    from cse_cli.recipe.files import roots  # with the next, every component and so torch
    from cse_cli.recipe.load import load
    from registry.errors import CseError

    try:
        return load(str(roots()[-1] / f"{name}.toml")).recipe.hash()
    except CseError:
        return None


def _known(recipe: str) -> dict[str, Reproduction]:
    """Return score → distribution; a single run is none."""
    found = {score: papers.distribution(recipe, score) for score in (AVERAGE, *STS_TASKS)}
    return {score: one for score, one in found.items() if one is not None and one.n > 1}


def _heads(known: Mapping[str, Reproduction], *, notes: bool) -> Iterator[str]:
    """Yield what stands above the runs: each source once, by the average where it has one."""
    for source in dict.fromkeys(one.source for one in known.values()):
        one = next(one for one in known.values() if one.source == source)
        spread = "" if one.std is None else f" ± {one.std:.2f}"
        numbers = f"{one.score} {one.low:.2f} to {one.high:.2f}, mean {one.mean:.2f}{spread}"
        note = f"; {one.note}" if notes and one.note else ""
        yield f"{one.n} independent runs of {one.paper}: {numbers} ({_short(source)}{note})"


def _of_run(result: Result, known: Mapping[str, Reproduction]) -> Iterator[str]:
    """Yield a run's line: its average's place, and the tasks that leave their range."""
    scores = {score: _value(result, score) for score in known}
    parts = [
        f"{score} {value:.2f}, {place(value, known[score])}"
        for score, value in scores.items()
        if value is not None and (score == AVERAGE or not known[score].low <= round(value, 2) <= known[score].high)
    ]
    tasks = [score for score, value in scores.items() if value is not None and score != AVERAGE]
    if tasks and not any(part.split()[0] in tasks for part in parts):
        parts.append("every task within its range")
    if parts:
        yield f"seed {result.seed}: {'; '.join(parts)}"


def _value(result: Result, score: str) -> float | None:
    if score == AVERAGE:
        return average(result.scores, STS_TASKS, METRIC)
    return result.scores.get(score, {}).get(METRIC)


def _short(source: str) -> str:
    """Return a source without what every address has."""
    return source.removeprefix("https://").removeprefix("github.com/")


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
