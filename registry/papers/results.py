"""Results outside the papers' tables: of other groups and lists, of this project, and reported averages by recipe."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from registry.papers.tables import AVERAGE, Answer, PaperModel, load, names

_MEASURED = Path(__file__).with_name("measured.toml")
_RUNS = Path(__file__).with_name("reproductions.toml")
_LEADERBOARD = Path(__file__).with_name("field_leaderboard.tsv")
_OTHER_LISTS = Path(__file__).with_name("other_lists.tsv")

COMMUNITY = "community"
LISTS = {
    COMMUNITY: "community leaderboard",
    "recent": "later methods, without labels",
    "llm_data": "with sentences of a language model",
    "labels": "with labels",
}
"""List → its title. Rows of two lists are never ranked together, because their methods are given different data."""


class Reproduction(PaperModel):
    """Runs of one recipe's method by another group.

    Args:
        recipe: Recipe of the same method.
        paper: Result that the runs reproduce, in words.
        score: Evaluator, as in the columns of papers. "avg" is the mean of the seven English STS sets.
        mean: Mean score of the runs.
        low: Lowest score.
        high: Highest score.
        n: Number of runs.
        std: Sample standard deviation, if the values or the source contain it.
        values: Scores of the runs, if the source contains them.
        source: Publication.
        note: Differences from the recipe, and doubts.
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


@cache
def reproductions() -> tuple[Reproduction, ...]:
    """Return all reproductions, one for each score, in the order of the file."""
    with _RUNS.open("rb") as file:
        sources = tomllib.load(file)["runs"]
    return tuple(one for source in sources for one in _runs_of(source))


def distribution(recipe: str, score: str = AVERAGE) -> Reproduction | None:
    """Return the largest published set of runs of a recipe's method, or None."""
    found = [one for one in reproductions() if (one.recipe, one.score) == (recipe, score)]
    return max(found, key=lambda one: one.n, default=None)


def _runs_of(source: dict[str, Any]) -> list[Reproduction]:
    """Return the reproductions of one source, one for each score."""
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
        encoder: Encoder in the list, such as "BERT-base".
        method: Method in the list.
        cells: Evaluator → Spearman × 100. Empty if only the average is reported.
        spreads: Evaluator, or "avg" → standard deviation in the list. Empty if the list has none.
        avg: Average in the list.
        avg_recomputed: Mean of the cells, or the average in the list without them.
        recipe: Recipe that reproduces the row.
        score: Key of the scores in the evaluators, if it differs from that of the list.
        not_reproduced_because: Reason why no recipe reproduces the row.
        note: Doubts about the row.
        list: List of the row, a key of `LISTS`.
        source: Publication, for rows of the other lists.
    """

    encoder: str
    method: str
    cells: dict[str, float]
    spreads: dict[str, float]
    avg: float
    avg_recomputed: float
    recipe: str = ""
    score: str = "spearman"
    not_reproduced_because: str = ""
    note: str = ""
    list: str = COMMUNITY
    source: str = ""

    @property
    def answer(self) -> Answer | None:
        """Recipe that reproduces the row, or the reason why it is not reproduced, or None if both are unknown."""
        if self.recipe:
            return Answer("recipe", self.recipe)
        return Answer("reason", self.not_reproduced_because) if self.not_reproduced_because else None


@cache
def field_rows() -> tuple[FieldRow, ...]:
    """Return the rows of the community leaderboard, by encoder and average."""
    return _rows(_LEADERBOARD)


@cache
def listed_rows() -> tuple[FieldRow, ...]:
    """Return the rows of all lists, the community leaderboard first."""
    return field_rows() + _rows(_OTHER_LISTS)


def _rows(path: Path) -> tuple[FieldRow, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return tuple(_row(line) for line in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _row(line: dict[str, str]) -> FieldRow:
    names = ("encoder", "method", "recipe", "score", "not_reproduced_because", "note", "source", "list")
    given = {name: value for name in names if (value := line.pop(name, ""))}
    avg, _, spread = line.pop("avg").partition("±")
    scores = {name: cell.partition("±") for name, cell in line.items() if cell != "-"}
    cells = {name: float(value) for name, (value, _, _) in scores.items()}
    spreads = {name: float(std) for name, (_, sign, std) in scores.items() if sign}
    return FieldRow(
        **given,
        cells=cells,
        spreads=spreads | ({"avg": float(spread)} if spread else {}),
        avg=float(avg),
        avg_recomputed=round(sum(cells.values()) / len(cells), 2) if cells else float(avg),
    )


class MeasuredRow(PaperModel):
    """Scores of a recipe over several seeds. It belongs to no paper and is on no leaderboard.

    It is for small recipes, so that `cse reproduce` can be tried on any machine.

    Args:
        recipe: Name of the recipe.
        settings: `Recipe.hash()` of the recipe that was measured.
        command: Command of the measurement.
        machine: Device and precision.
        versions: Versions of the software.
        date: Day of the measurement.
        seeds: Seeds in the order of the scores.
        judged: Evaluator whose mean `cse reproduce` judges.
        metric: Metric of all scores.
        tolerance: Precision of your mean that a verdict requires, in points.
        scores: Evaluator → score of each seed.
    """

    recipe: str
    settings: str
    command: str
    machine: str
    versions: str
    date: str
    seeds: tuple[int, ...]
    judged: str
    metric: str = "spearman"
    tolerance: float = Field(gt=0)
    scores: dict[str, Annotated[tuple[float, ...], BeforeValidator(_floats)]]

    def mean(self, evaluator: str) -> float:
        """Return the mean over the seeds, rounded to two decimals like reported results."""
        return round(fmean(self.scores[evaluator]), 2)

    def std(self, evaluator: str) -> float:
        """Return the sample standard deviation over the seeds."""
        return stdev(self.scores[evaluator])


@cache
def measured_rows() -> dict[str, MeasuredRow]:
    """Return recipe → its measured result."""
    with _MEASURED.open("rb") as file:
        rows = [MeasuredRow.model_validate(row) for row in tomllib.load(file)["rows"]]
    return {row.recipe: row for row in rows}


LISTED = "lists"
"""Source of the averages in the lists of methods that train without labels or generated text."""
_LISTS = (COMMUNITY, "recent")


@cache
def reported_averages() -> dict[str, dict[str, float]]:
    """Return recipe → source → reported average × 100. Sources are `LISTED` and tables such as "ifcl/sts_en"."""
    found: dict[str, dict[str, float]] = {}
    for listed in listed_rows():
        if listed.recipe and listed.list in _LISTS:
            found.setdefault(listed.recipe, {}).setdefault(LISTED, listed.avg)
    for key in names():
        for identifier, table in load(key).tables.items():
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
