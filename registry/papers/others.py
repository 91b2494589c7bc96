"""What others measured: their runs of our recipes' methods, and the field's public hand-kept leaderboard."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from pydantic import model_validator

from registry.papers.tables import AVERAGE, Answer, PaperModel

_RUNS = Path(__file__).with_name("reproductions.toml")
_LEADERBOARD = Path(__file__).with_name("field_leaderboard.tsv")


class Reproduction(PaperModel):
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
    with _RUNS.open("rb") as file:
        sources = tomllib.load(file)["runs"]
    return tuple(one for source in sources for one in _runs_of(source))


def distribution(recipe: str, score: str = AVERAGE) -> Reproduction | None:
    """Return the largest set of runs of a recipe's method that somebody else published, if any did."""
    found = [one for one in reproductions() if (one.recipe, one.score) == (recipe, score)]
    return max(found, key=lambda one: one.n, default=None)


def _runs_of(source: dict[str, Any]) -> list[Reproduction]:
    """Return the reproductions that one source published, one for each score."""
    scores = source.pop("scores", {})
    values = _floats(source.pop("values", ()))
    made = []
    if values:
        spread = round(stdev(values), 2) if len(values) > 1 else None
        summary = {"mean": round(fmean(values), 2), "low": min(values), "high": max(values), "n": len(values)}
        made.append(Reproduction(**{**summary, "std": spread, "values": values, **source}))
    for score, text in scores.items():
        low, mean, high = _floats(text)
        made.append(Reproduction(score=score, low=low, mean=mean, high=high, **source))
    return made


def _floats(values: Any) -> Any:
    return tuple(float(value) for value in values.split()) if isinstance(values, str) else values


@dataclass(frozen=True)
class FieldRow:
    """One method on one encoder.

    Args:
        encoder: As the list says it, such as "BERT-base".
        method: As the list says it.
        cells: Evaluator → Spearman × 100.
        spreads: Evaluator, or "avg" → ± as listed; empty where none is.
        avg: As listed.
        avg_recomputed: Mean of the cells.
        recipe: Our recipe that answers it.
        score: Key under which our evaluators report the row's scores, where it is not the list's.
        unanswered: Why no recipe answers it.
        note: What is doubtful about the row.
    """

    encoder: str
    method: str
    cells: dict[str, float]
    spreads: dict[str, float]
    avg: float
    avg_recomputed: float
    recipe: str = ""
    score: str = "spearman"
    unanswered: str = ""
    note: str = ""

    @property
    def answer(self) -> Answer | None:
        """What answers it; None while neither a recipe nor a reason is known."""
        if self.recipe:
            return Answer("recipe", self.recipe)
        return Answer("reason", self.unanswered) if self.unanswered else None


@cache
def field_rows() -> tuple[FieldRow, ...]:
    """Return the rows in the list's order: by encoder, then by average."""
    with _LEADERBOARD.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return tuple(_row(line) for line in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _row(line: dict[str, str]) -> FieldRow:
    names = ("encoder", "method", "recipe", "score", "unanswered", "note")
    encoder, method, recipe, score, unanswered, note = (line.pop(name) or "" for name in names)
    avg, _, spread = line.pop("avg").partition("±")
    scores = {name: cell.partition("±") for name, cell in line.items()}
    cells = {name: float(value) for name, (value, _, _) in scores.items()}
    spreads = {name: float(std) for name, (_, sign, std) in scores.items() if sign}
    return FieldRow(
        encoder=encoder,
        method=method,
        cells=cells,
        spreads=spreads | ({"avg": float(spread)} if spread else {}),
        avg=float(avg),
        avg_recomputed=round(sum(cells.values()) / len(cells), 2),
        recipe=recipe,
        score=score or "spearman",
        unanswered=unanswered,
        note=note,
    )
