"""Rows and tables of scores: the data behind `cse leaderboard` and the tables of reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, Field, computed_field

from cse_cli.core.identity import Mode
from cse_cli.core.stats import LEVEL, ROUNDING, Trend, beside_number, correct_named, paired

SCHEMA_VERSION = 6
Mark = Literal["within", "above", "below", "incomparable", "single seed", "test-selected", "stale", "doubtful"]
MARKS: dict[Mark, tuple[str, str]] = {
    "within": ("≈", "no statistically significant difference (t test at 5 %, corrected for looks and cells)"),
    "above": (
        "▲",
        "significantly above the reference; with equal scores in all seeds, above by more than its rounding",
    ),
    "below": (
        "▼",
        "significantly below the reference; with equal scores in all seeds, below by more than its rounding",
    ),
    "incomparable": ("≠", "the paper reports another quantity (metric, split, aggregate or N), so there is no test"),
    "single seed": ("¹", "one seed: the variance is unknown, so the difference is not tested"),
    "test-selected": ("‡", "a test split selected the state: optimistic, and not tested"),
    "stale": ("†", "the recipe's file now describes another experiment, and --set does not explain it: not tested"),
    "doubtful": ("?", "doubtful in the paper: see the note"),
}
"""Symbol and meaning of each mark. Only "above" and "below" mean that there is a difference."""
POSITIONS: tuple[Mark, ...] = ("within", "above", "below", "incomparable")
"""Marks of a difference. The other marks are doubts about the number itself."""


class Score(BaseModel, frozen=True):
    """A cell of a score table.

    Args:
        mean: Mean over the seeds, or the reported number.
        std: Sample standard deviation over the seeds, or the reported one. None for a single seed.
        n: Number of seeds, or of the runs of others. None if it is unknown, or if there are no runs.
        reference: Number to compare with: the paper's, or the untrained encoder's.
        p: Two-sided p-value of no difference from the reference, corrected for looks and, in a complete row, for its
            cells. None if the difference is not tested.
        equal: Whether several seeds have the same score, so that the difference is compared with the rounding of the
            reference and not tested.
        comparable: Whether the reported number is the same quantity: metric, split, aggregate and N.
        implied: Value that the rest of the paper implies if the reported number is a misprint.
        low: Smallest value of a distribution that others measured, up to `high`.
        digits: Number of decimals to show.
    """

    mean: float
    std: float | None = None
    n: int | None = None
    reference: float | None = None
    p: float | None = None
    significant: bool = False
    equal: bool = False
    comparable: bool = True
    marks: tuple[Mark, ...] = ()
    implied: float | None = None
    low: float | None = None
    high: float | None = None
    digits: int = 2

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float | None:
        """`mean − reference`."""
        return None if self.reference is None else self.mean - self.reference

    @property
    def target(self) -> float:
        """Number to compare your runs with: the implied one if the reported one is a misprint."""
        return self.mean if self.implied is None else self.implied

    def text(self) -> str:
        """Return the number with the marks of its doubts."""
        return f"{self.mean:.{self.digits}f}" + "".join(MARKS[one][0] for one in self.marks if one not in POSITIONS)

    def std_text(self) -> str:
        """Return the standard deviation, or an empty string without one."""
        return "" if self.std is None else f"{self.std:.{self.digits}f}"

    def difference_text(self) -> str:
        """Return the signed difference with its mark. Empty without a reference."""
        if self.difference is None:
            return ""
        number = f"{self.difference:+.{self.digits}f}".replace("-", "−")
        return number + "".join(MARKS[one][0] for one in self.marks if one in POSITIONS)

    def marked(self, *, stale: bool = False, test_selected: bool = False) -> Score:
        """Return a measured score with its marks. A doubt removes the significance."""
        other = self.difference is not None and not self.comparable
        doubts = {"incomparable": other, "test-selected": test_selected, "stale": stale, "single seed": self.n == 1}
        marks: list[Mark] = [mark for mark in MARKS if doubts.get(mark, False)]
        if not marks and self.difference is not None and (self.p is not None or self.equal):
            differs = self.significant or self.p is None
            marks = [("above" if self.difference > 0 else "below") if differs else "within"]
        significant = self.significant and not (stale or test_selected or other)
        return self.model_copy(update={"marks": tuple(marks), "significant": significant})

    def with_p(self, p: float | None) -> Score:
        """Return the score with another p-value and the significance that follows from it."""
        return self.model_copy(update={"p": p, "significant": p is not None and p < LEVEL})

    def untested(self) -> Score:
        """Return the score without a statement about its difference."""
        return self.model_copy(update={"p": None, "significant": False, "equal": False})


class ScoreRow(BaseModel, frozen=True):
    """One row of a table of scores.

    Args:
        source: "paper" for a reported row, "measured" for your runs, "untrained" for their encoder
            before training, "baseline" for word overlap, "reproduction" for runs of others, "community" for a row of
            the community leaderboard.
        paper: Key of the paper whose table has the row.
        reported_in: Tables that report the row, such as "IFCL Table 1". Several if papers copy the row.
        reproduces: Reported row or method that the runs are compared with.
        copies: Other recipes with the same settings, whose runs are in this row.
        settings: Differences from the recipe's file, as `key=value` or as the row of a study that the runs were started
            for, and from other experiments with the same settings, as "text 1f914d36".
        configurations: Number of configurations of the recipe. This one has the best mean dev score.
        step: Selected step of the only run, in a table of seeds.
        seconds: Duration of this run.
    """

    source: Literal["paper", "measured", "untrained", "baseline", "reproduction", "community"]
    name: str
    paper: str | None = None
    table: str | None = None
    reported_in: tuple[str, ...] = ()
    reproduces: str | None = None
    recipe: str | None = None
    copies: tuple[str, ...] = ()
    recipe_hash: str | None = None
    experiment: str | None = None
    settings: tuple[str, ...] = ()
    configurations: int = 1
    model: str | None = None
    language: str | None = None
    seeds: tuple[int, ...] = ()
    scores: dict[str, Score]
    notes: tuple[str, ...] = ()
    step: int | None = Field(None, exclude=True)
    seconds: float | None = Field(None, exclude=True)

    @property
    def recipes(self) -> str:
        """Names of all recipes that the runs come from."""
        return ", ".join(filter(None, (self.recipe, *self.copies)))

    @property
    def comparison(self) -> str:
        """Reference of the row's differences, such as "to IFCL-BERT base"."""
        return f"to {self.reproduces or 'before training'}"

    @property
    def seed_count(self) -> int:
        """Number of seeds, also of a reproduction by others. 0 if it is unknown."""
        if self.source == "reproduction":
            return max((score.n or 0 for score in self.scores.values()), default=0)
        return len(self.seeds)


class MissingCell(BaseModel, frozen=True):
    """A cell of a study that lacks runs."""

    row: str
    columns: tuple[str, ...]
    seeds: int
    requested: int


class ScoreTable(BaseModel, frozen=True):
    """One table of the leaderboard.

    Args:
        kind: "encoder" for all scores of one encoder, "table" for a paper's table with the runs of its recipes, "study"
            for one with the runs of a study, also for its own rows, "community" for one encoder in the community
            leaderboard or another list, "comparison" for methods that are compared with the first one, "seeds" for
            those of one experiment.
        table: Identifier of a paper's table, or list of results, such as "community" or "llm_data".
        ranking: Heading of the column that ranks the rows. Empty if no column does.
        missing: Cells of a study's table that lack runs.
        command: Command that computes missing cells or empty rows.
    """

    kind: Literal["encoder", "table", "study", "community", "comparison", "seeds"]
    heading: str
    encoder: str | None = None
    language: str | None = None
    paper: str | None = None
    table: str | None = None
    study: str | None = None
    columns: tuple[str, ...]
    ranking: str = ""
    rows: tuple[ScoreRow, ...]
    remarks: tuple[str, ...] = ()
    trends: tuple[Trend, ...] = ()
    missing: tuple[MissingCell, ...] = ()
    command: str | None = None

    @property
    def shown_column(self) -> str:
        """Heading of the column that ranks the rows, else of the first one."""
        return self.ranking or self.columns[0]


def measure(
    values: Sequence[float], reported: Score | None = None, mode: Mode = "anytime", *, before: Sequence[float] = ()
) -> Score:
    """Return the score of your seeds, tested unless the reference is missing or another quantity.

    A `reported` cell is tested as `beside_number` does, and a difference inside its rounding does not count. Without
    one, the scores `before` training are tested seed by seed.
    """
    n, mean, half = len(values), fmean(values), 0.0
    rounding = ROUNDING * max(1.0, abs(mean))
    std = stdev(values) if n > 1 and max(values) - min(values) > rounding else None  # equal scores have no seeds
    score = Score(mean=mean, std=std, n=n)
    if reported is not None:
        half, design, differences = 0.5 * 10.0**-reported.digits, beside_number(n), values
        score = score.model_copy(update={"reference": reported.target, "comparable": reported.comparable})
    elif before:
        design, differences = paired(n), [after - start for after, start in zip(values, before, strict=True)]
        score = score.model_copy(update={"reference": fmean(before)})
    if n == 1 or score.difference is None or not score.comparable or mode == "incomplete":
        return score
    if abs(score.difference) <= half + rounding:
        return score.with_p(1.0)
    if (spread := stdev(differences)) <= rounding:
        return score.model_copy(update={"equal": True})
    return score.with_p(design.p(score.difference / spread * math.sqrt(design.size), mode))


def correct_row(scores: Mapping[str, Score], primary: str) -> dict[str, Score]:
    """Return the cells of one row with p-values corrected together. The primary column is tested first."""
    corrected = correct_named({name: score.p for name, score in scores.items()}, primary)
    return {name: score.with_p(corrected[name]) for name, score in scores.items()}
