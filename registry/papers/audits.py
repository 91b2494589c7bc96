"""Comparisons of methods with equations and code, from `registry/papers/audits/`. Does not import torch."""

from __future__ import annotations

import tomllib
from collections import Counter
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from registry.papers.tables import PaperModel

_FILES = Path(__file__).with_name("audits")
Words = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
SHARED = {
    "optimizer": "Its kind, β, form of the weight decay and bias correction.",
    "ε of AdamW": "Its value, and whether it is added before or after the bias correction of the second moment.",
    "precision": "Of the matrix products, in training and in the evaluation.",
    "last batch": "Whether an incomplete last batch of an epoch is used.",
    "text of the evaluation": "The original sentences, or tokens of them.",
    "evaluation after the last step": "Whether the last state can be selected, too.",
}
"""Point that every comparison with code answers → its meaning."""


class Difference(PaperModel):
    """A point in which the default of the recipes differs from the code.

    Args:
        point: Name of the point.
        code: File and line in the code.
        here: Default of the recipes.
        page: Doubtful point on the page of the method or of another one. Empty if no page has it.
        switch: Setting with the behavior of the code. Empty if no setting has it.
    """

    point: Words
    code: Words
    here: Words
    page: str = ""
    switch: str = ""


class Code(PaperModel):
    """Comparison of the recipes with one commit of a repository, point by point.

    Args:
        repository: Owner and name on GitHub.
        commit: Full commit.
        authors: Whether the authors of the method wrote the code.
        read: Day of the comparison.
        by: Person or project that compared.
        compared: Number of compared points.
        agree: Number of points in which the default of the recipes does what the code does.
        points: Names of the agreeing points.
        without: Points of `SHARED` that this code or the method does not have, such as an optimizer without training.
        differences: The other points.
        recipes: Recipes that were compared. Empty for all recipes of the method.
    """

    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    authors: bool
    read: date
    by: Words
    compared: int = Field(ge=1)
    agree: int = Field(ge=0)
    points: tuple[Words, ...]
    without: tuple[Words, ...] = ()
    differences: tuple[Difference, ...] = ()
    recipes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.compared != self.agree + len(self.differences):
            raise ValueError(f"{self.compared} compared points, but {self.agree} agree, {len(self.differences)} differ")
        if len(self.points) != self.agree:
            raise ValueError(f"{self.agree} points agree, but {len(self.points)} have a name")
        answers = Counter([*self.points, *self.without, *(one.point for one in self.differences)])
        if twice := [point for point, times in answers.items() if times > 1]:
            raise ValueError(f"points that appear twice: {twice}")
        if unanswered := [point for point in SHARED if point not in answers]:
            raise ValueError(f"shared points without an answer: {unanswered}")
        if others := [point for point in self.without if point not in SHARED]:
            raise ValueError(f"not shared points in `without`: {others}")
        return self

    @property
    def url(self) -> str:
        """Address of the commit."""
        return f"https://github.com/{self.repository}/tree/{self.commit}"

    @property
    def documented(self) -> tuple[str, ...]:
        """Doubtful points on the pages of methods that explain differences, each once."""
        return tuple(dict.fromkeys(one.page for one in self.differences if one.page))


class Checkpoint(PaperModel):
    """Scores of a checkpoint that the authors published, computed with this project.

    Args:
        recipe: Recipe with the encoder of the checkpoint.
        model: Name of the checkpoint.
        scores: Evaluator → score.
        command: Command that computed them.
        date: Day of the measurement.
        machine: Device and precision.
    """

    recipe: str
    model: Words
    scores: dict[str, float] = Field(min_length=1)
    command: Words
    date: date
    machine: Words


class Audit(PaperModel):
    """Everything that was compared for the recipes of one method.

    Args:
        page: Name of the file, which is that of the method's page in `docs/methods/`.
        method: Name of the method.
        recipes: Recipes with the compared settings. A recipe that extends one of them is not included.
        equations: Tests of values against formulas that the test writes out, as "file::function".
        code: Comparisons with code.
        checkpoint: Scores of checkpoints that the authors published.
    """

    page: str
    method: Words
    recipes: tuple[str, ...] = Field(min_length=1)
    equations: tuple[Annotated[str, StringConstraints(pattern=r"^tests/[\w/]+\.py::test_\w+$")], ...] = ()
    code: tuple[Code, ...] = ()
    checkpoint: tuple[Checkpoint, ...] = ()

    @model_validator(mode="after")
    def _known_recipes(self) -> Self:
        named = {name for code in self.code for name in code.recipes} | {one.recipe for one in self.checkpoint}
        if unknown := named - set(self.recipes):
            raise ValueError(f"recipes that the method does not list: {sorted(unknown)}")
        return self

    def code_of(self, recipe: str) -> tuple[Code, ...]:
        """Return the comparisons that cover a recipe of the method."""
        return tuple(code for code in self.code if not code.recipes or recipe in code.recipes)


def read_audit(file: Path) -> Audit:
    """Return the content of one file.

    Raises:
        ValueError: If it is not valid. The numbers must add up, and unknown keys are errors.
    """
    with file.open("rb") as opened:
        content: dict[str, Any] = tomllib.load(opened)
    return Audit.model_validate({**content, "page": file.stem})


@cache
def audits() -> dict[str, Audit]:
    """Return page of a method → its comparisons, sorted by page."""
    return {file.stem: read_audit(file) for file in sorted(_FILES.glob("*.toml"))}


@cache
def _by_recipe() -> dict[str, Audit]:
    return {recipe: audit for audit in audits().values() for recipe in audit.recipes}


def audit_of(recipe: str) -> Audit | None:
    """Return the comparisons of a recipe of the package, or None if no file names it."""
    return _by_recipe().get(recipe)
