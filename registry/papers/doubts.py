"""Doubtful points of the methods, and the settings of their recipes that choose otherwise."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from registry.papers.tables import PaperModel


class DoubtfulPoint(PaperModel):
    """A doubtful point of a method.

    Args:
        page: Page of docs/methods that explains the point, without suffix.
        name: Letters and number of the point, such as "A10".
        about: What is doubtful.
        options: Other choices, each as `KEY=VALUE` with spaces between several keys. Those with more keys come first.
        recipes: Recipes with this point. Recipes that extend them have it, too.
    """

    page: str
    name: str
    about: str
    options: tuple[str, ...]
    recipes: tuple[str, ...]


@cache
def doubtful_points() -> tuple[DoubtfulPoint, ...]:
    """Return all points, by page."""
    with Path(__file__).with_name("doubts.toml").open("rb") as file:
        pages = tomllib.load(file)
    named = [(page, name, point) for page, points in pages.items() for name, point in points.items()]
    return tuple(DoubtfulPoint(page=page, name=name, **point) for page, name, point in named)
