"""What a leaderboard's table is made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.spread import Score

SCHEMA_VERSION = 2

Source = Literal["paper", "ours", "untrained", "reproduction", "field"]


class Row(BaseModel):
    """One line.

    Args:
        source: A printed row, our seeds of one configuration, their encoder before training, what others measured
            with many seeds, or a row of the field's public leaderboard.
        name: The printed row, or the recipe's title.
        paper: Key of the paper whose table it stands in; None for what no paper's row can be compared with.
        table: Table of that paper.
        printed: Where it is printed, for people: "IFCL Table 1"; several where papers repeat each other.
        answers: The printed row that our runs answer, and that they are compared with.
        recipe: Name of the recipe.
        settings: How a configuration differs from the recipe's file, as `key=value`.
        configurations: Of how many configurations of this recipe this is the best by its dev mean.
        seeds: Every seed counted, once each.
        scores: Column → cell, where there is one.
        notes: What a reader must know before comparing.
    """

    model_config = ConfigDict(frozen=True)

    source: Source
    name: str
    paper: str | None = None
    table: str | None = None
    printed: tuple[str, ...] = ()
    answers: str | None = None
    recipe: str | None = None
    recipe_hash: str | None = None
    settings: tuple[str, ...] = ()
    configurations: int = 1
    model: str | None = None
    language: str | None = None
    seeds: tuple[int, ...] = ()
    scores: dict[str, Score]
    notes: tuple[str, ...] = ()


class Trend(BaseModel):
    """Whether our numbers rise and fall with the paper's.

    Args:
        along: The printed column, or the printed row of a table that is printed sideways.
        rho: Spearman's rank correlation; None where one side is constant.
        p: Two-sided.
        n: Cells that both have.
        exact: Whether `p` counts all orders, or is Student's approximation.
    """

    model_config = ConfigDict(frozen=True)

    along: str
    rho: float | None
    p: float | None
    n: int
    exact: bool


class Missing(BaseModel):
    """A cell of a study that lacks runs."""

    model_config = ConfigDict(frozen=True)

    row: str
    columns: tuple[str, ...]
    seeds: int
    wanted: int


class Block(BaseModel):
    """One table.

    Args:
        kind: All of one encoder, a paper's table with the runs of its recipes, or with those of a study.
        columns: Headings, in order.
        rows: Lines, in order.
        remarks: What holds for the whole table.
        trends: Of a study's table.
        missing: Of a study's table.
        command: What computes the missing cells.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["encoder", "table", "study"]
    heading: str
    encoder: str | None = None
    language: str | None = None
    paper: str | None = None
    table: str | None = None
    study: str | None = None
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    trends: tuple[Trend, ...] = ()
    missing: tuple[Missing, ...] = ()
    command: str | None = None
