"""Reported averages of the seven English STS sets, by recipe. Does not import torch."""

from __future__ import annotations

from functools import cache

from registry import papers
from registry.papers.tables import AVERAGE

LISTED = "lists"
"""Source of the averages in the lists of methods that train without labels or generated text."""
_LISTS = (papers.COMMUNITY, "recent")


@cache
def reported_averages() -> dict[str, dict[str, float]]:
    """Return recipe → source → reported average × 100. Sources are `LISTED` and tables such as "ifcl/sts_en"."""
    found: dict[str, dict[str, float]] = {}
    for listed in papers.listed_rows():
        if listed.recipe and listed.list in _LISTS:
            found.setdefault(listed.recipe, {}).setdefault(LISTED, listed.avg)
    for key in papers.names():
        for identifier, table in papers.load(key).tables.items():
            places = [place for place, column in enumerate(table.columns) if column.evaluator == AVERAGE]
            if len(places) != 1 or table.score != "spearman" or table.language != "en":
                continue
            for row in table.rows.values():
                if row.recipe and (value := row.numbers[places[0]]) is not None:
                    found.setdefault(row.recipe, {}).setdefault(f"{key}/{identifier}", value)
    return found


def reported_difference(recipe: str, baseline: str) -> float | None:
    """Return the reported average of a recipe's method minus that of another one.

    Both are from the lists, or from the first table of a paper that has both. None if there is no such source.
    """
    averages = reported_averages()
    own, other = averages.get(recipe, {}), averages.get(baseline, {})
    return next((own[source] - other[source] for source in own if source in other), None)
