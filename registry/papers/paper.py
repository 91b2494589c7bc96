"""A paper: its citation, its tables as printed, and the experiments it draws."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from registry.papers.cells import Answer, Printing
from registry.papers.tables import Table


class Quoted(Printing):
    """A number that the text quotes of a figure.

    Args:
        what: What it is.
        value: As quoted.
        high: The other end, where a range is quoted.
    """

    what: str
    value: float
    high: float | None = None


class Figure(Printing):
    """One experiment that the paper draws.

    Args:
        number: Its number in the paper, such as "4c".
        caption: What it shows, in our words.
        x: What the horizontal axis is.
        y: What the vertical axis is.
        quoted: Numbers that the text gives.
        note: What a reader must know before comparing.
        study: The study that draws ours.
        recipes: Recipes whose runs draw it, where no training differs.
        unanswered: Why nothing does.
    """

    number: str
    caption: str
    x: str
    y: str
    quoted: tuple[Quoted, ...] = ()
    note: str = ""
    study: str | None = None
    recipes: tuple[str, ...] = ()
    unanswered: str | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if sum(map(bool, (self.study, self.recipes, self.unanswered))) != 1:
            raise ValueError("a figure names the study or the recipes that draw it or, as `unanswered`, why none does")
        return self

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What draws ours."""
        if self.recipes:
            return tuple(Answer("recipe", recipe) for recipe in self.recipes)
        return (Answer("study", self.study) if self.study else Answer("reason", self.unanswered or ""),)


class PaperTables(Printing):
    """One paper: its citation, every table as printed, and every experiment that it only draws.

    Args:
        key: File name under `registry/papers/`, and `paper.key` in recipes.
        short: How a heading names it.
        citation: Authors, title, where and when.
        url: Where to read it.
        tables: Identifier → table, in printed order.
        figures: Identifier → figure, in printed order; diagrams of a method are left out.
    """

    key: str
    short: str
    citation: str
    url: str
    tables: dict[str, Table] = Field(min_length=1)
    figures: dict[str, Figure] = Field(default_factory=dict)
