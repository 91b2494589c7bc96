"""Results of the small recipes, measured by this project, so that `cse reproduce` can be tried on any machine."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from registry.papers.tables import PaperModel

_FILE = Path(__file__).with_name("measured.toml")


def _split(values: Any) -> Any:
    return tuple(float(value) for value in values.split()) if isinstance(values, str) else values


class MeasuredRow(PaperModel):
    """Scores of a recipe over several seeds. It belongs to no paper and is on no leaderboard.

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
    scores: dict[str, Annotated[tuple[float, ...], BeforeValidator(_split)]]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if any(len(values) != len(self.seeds) for values in self.scores.values()):
            raise ValueError("every evaluator needs one score for each seed")
        if self.judged not in self.scores:
            raise ValueError(f"there are no scores of '{self.judged}'")
        return self

    def mean(self, evaluator: str) -> float:
        """Return the mean over the seeds, rounded to two decimals like reported results."""
        return round(fmean(self.scores[evaluator]), 2)

    def std(self, evaluator: str) -> float:
        """Return the sample standard deviation over the seeds."""
        return stdev(self.scores[evaluator])


@cache
def measured_rows() -> dict[str, MeasuredRow]:
    """Return recipe → its measured result."""
    with _FILE.open("rb") as file:
        rows = [MeasuredRow.model_validate(row) for row in tomllib.load(file)["rows"]]
    return {row.recipe: row for row in rows}
