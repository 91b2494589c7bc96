"""Rows and tables of scores: the data behind `cse leaderboard` and the tables of reports."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from cse_cli.analysis.score import Score

SCHEMA_VERSION = 4


class CellCoverage(BaseModel, frozen=True):
    """State of reported cells of one row on this machine.

    Args:
        columns: Columns of the cells. Empty for every reported cell of the row.
        state: "run" if finished runs exist. "ready" if a recipe or study can run. "needs" if a model or data set is
            missing. "held" for a setting of a recipe. "data" for a number of a data set in the catalog. "reason" if
            the project gives a reason instead of a recipe. "open" without any of these.
        seeds: Seeds of the finished runs.
        text: Description of the state.
    """

    columns: tuple[str, ...] = ()
    state: Literal["run", "ready", "needs", "held", "data", "reason", "open"]
    seeds: tuple[int, ...] = ()
    text: str


class ScoreRow(BaseModel, frozen=True):
    """One row of a table of scores.

    Args:
        source: "paper" for a reported row, "measured" for the seeds of one configuration, "untrained" for their encoder
            before training, "reproduction" for runs of others, "community" for a row of the community leaderboard.
        name: Name of the reported row, or title of the recipe.
        paper: Key of the paper whose table has the row. None if the row is in no paper's table.
        table: Identifier of this table.
        reported_in: Tables that report the row, such as "IFCL Table 1". Several if papers copy the row.
        reproduces: Reported row that the runs reproduce and are compared with.
        recipe: Name of the recipe.
        copies: Other recipes with the same settings, whose runs are in this row.
        experiment: ID of the experiment of the runs.
        settings: Differences from the recipe's file, as `key=value`, and from other experiments with the same settings,
            as "text 1f914d36".
        configurations: Number of configurations of the recipe. This one has the best mean dev score.
        seeds: Seeds of the runs.
        scores: Column → cell.
        notes: Remarks on the row.
        coverage: Coverage of the cells of a reported row.
    """

    source: Literal["paper", "measured", "untrained", "reproduction", "community"]
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
    coverage: tuple[CellCoverage, ...] = ()

    @property
    def recipes(self) -> str:
        """Names of all recipes that the runs come from."""
        return ", ".join(filter(None, (self.recipe, *self.copies)))

    @property
    def comparison(self) -> str:
        """Reference of the row's differences: "to IFCL-BERT base"."""
        return f"to {self.reproduces or 'before training'}"

    @property
    def seed_count(self) -> int:
        """Number of seeds, also of a reproduction by others. 0 if it is unknown."""
        if self.source == "reproduction":
            return max((score.n for score in self.scores.values()), default=0)
        return len(self.seeds)


class Trend(BaseModel, frozen=True):
    """Rank correlation of measured with reported cells.

    Args:
        along: Reported column, or reported row of a table with one row.
        rho: Spearman's rank correlation. None if one side is constant.
        p: Two-sided p-value.
        n: Number of cells that both have.
        exact: Whether `p` counts all orders. If not, it is Student's approximation.
    """

    along: str
    rho: float | None
    p: float | None
    n: int
    exact: bool


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
            for one with the runs of a study, "community" for the community leaderboard of one encoder.
        columns: Headings of the scores.
        rows: Rows in the order in which they are shown.
        remarks: Remarks on the whole table.
        trends: Trends of a study's table.
        missing: Cells of a study's table that lack runs.
        command: Command that computes missing cells or empty rows.
    """

    kind: Literal["encoder", "table", "study", "community"]
    heading: str
    encoder: str | None = None
    language: str | None = None
    paper: str | None = None
    table: str | None = None
    study: str | None = None
    columns: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    remarks: tuple[str, ...] = ()
    trends: tuple[Trend, ...] = ()
    missing: tuple[MissingCell, ...] = ()
    command: str | None = None
