"""What others measured when they ran a method again: reference distributions, `reproductions.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from pydantic import model_validator

from registry.papers.cells import AVERAGE, Printing

_FILE = Path(__file__).parent / "reproductions.toml"


def _floats(values: Any) -> Any:
    return tuple(float(value) for value in values.split()) if isinstance(values, str) else values


class Reproduction(Printing):
    """Runs of one recipe's method by somebody else.

    Args:
        recipe: Our recipe of the same method.
        paper: What the runs reproduce, in words.
        score: Evaluator as in the papers' columns; "avg" is the mean of the seven English STS sets.
        mean: Of the runs.
        low: Smallest.
        high: Largest.
        n: How many runs.
        std: Sample standard deviation, where the values or the source give it.
        values: Each run's, where the source gives them.
        source: Where it was published.
        note: How the runs differ from the recipe, and what is doubtful.
    """

    recipe: str
    paper: str
    score: str = AVERAGE
    mean: float
    low: float
    high: float
    n: int
    std: float | None = None
    values: tuple[float, ...] = ()
    source: str
    note: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.low <= self.mean <= self.high:
            raise ValueError("low ≤ mean ≤ high does not hold")
        if self.values:
            known = (len(self.values), round(min(self.values), 2), round(max(self.values), 2))
            if known != (self.n, self.low, self.high) or abs(fmean(self.values) - self.mean) > 0.01:
                raise ValueError("mean, low, high and n are not those of the values")
        return self


@cache
def reproductions() -> tuple[Reproduction, ...]:
    """Return every reproduction, one a score, in the file's order."""
    with _FILE.open("rb") as file:
        sources = tomllib.load(file)["runs"]
    return tuple(one for source in sources for one in _of(source))


def distribution(recipe: str, score: str = AVERAGE) -> Reproduction | None:
    """Return the largest set of runs of a recipe's method that somebody else published, if any did."""
    found = [one for one in reproductions() if (one.recipe, one.score) == (recipe, score)]
    return max(found, key=lambda one: one.n, default=None)


def _of(source: dict[str, Any]) -> list[Reproduction]:
    """Return one reproduction a score of what was published together."""
    scores = source.pop("scores", {})
    values = _floats(source.pop("values", ()))
    made = []
    if values:
        spread = round(stdev(values), 2) if len(values) > 1 else None
        told = {"mean": round(fmean(values), 2), "low": min(values), "high": max(values), "n": len(values)}
        made.append(Reproduction(**{**told, "std": spread, "values": values, **source}))
    for score, text in scores.items():
        low, mean, high = _floats(text)
        made.append(Reproduction(score=score, low=low, mean=mean, high=high, **source))
    return made
