"""Comparisons of methods with equations and code, from `registry/papers/audits/`, badges of recipes, doubtful points.

A badge contains the checks of a recipe, in one line or in several. `docs/fidelity.md` explains the words. This module
does not import torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from registry.papers.results import MeasuredRow, Reproduction, measured_rows, reproductions
from registry.papers.tables import AVERAGE, PaperModel

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


class Apart(PaperModel):
    """Differences of two trainings with the same start and the same batches.

    Args:
        loss: Largest relative difference of the loss, over the steps.
        norm: Largest relative difference of the gradient's norm, over the steps.
        rate: Largest relative difference of the learning rate, over the steps.
        weights: Distance of the last weights from each other, divided by the distance that the training moved them.
    """

    loss: float = Field(ge=0)
    norm: float = Field(ge=0)
    rate: float = Field(ge=0)
    weights: float = Field(ge=0)


class Trajectory(PaperModel):
    """A training by the authors' program and one by `cse`, with the same start, the same batches and no dropout.

    Args:
        recipe: Recipe that was trained.
        repository: Owner and name of the program on GitHub.
        commit: Full commit.
        steps: Number of steps.
        settings: Settings that make the recipe compute what the program does.
        both: What replaced a random choice on both sides, or has no setting.
        repaired: What was changed in the program from outside.
        fp32: Differences in single precision.
        fp64: Differences in double precision, or None.
        scores: Largest difference of the scores of the two last models on the seven STS sets, or None. Each side
            computed its own.
        date: Day of the measurement.
    """

    recipe: str
    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    steps: int = Field(ge=1)
    settings: tuple[Words, ...] = ()
    both: tuple[Words, ...] = ()
    repaired: tuple[Words, ...] = ()
    fp32: Apart
    fp64: Apart | None = None
    scores: float | None = Field(None, ge=0)
    date: date


def power(number: float) -> str:
    """Return a small number with one digit, such as "4e-6"."""
    return f"{number:.0e}".replace("e-0", "e-")


class Audit(PaperModel):
    """Everything that was compared for the recipes of one method.

    Args:
        page: Name of the file, which is that of the method's page in `docs/methods/`.
        method: Name of the method.
        recipes: Recipes with the compared settings. A recipe that extends one of them is not included.
        cite: Keys in `references.bib` of the method's works.
        cite_for: Recipe → further keys. It may also be a recipe outside `recipes` that uses the method.
        equations: Tests of values against formulas that the test writes out, as "file::function".
        code: Comparisons with code.
        checkpoint: Scores of checkpoints that the authors published.
        trajectory: Trainings by the authors' program next to those of `cse`.
    """

    page: str
    method: Words
    recipes: tuple[str, ...] = Field(min_length=1)
    cite: tuple[str, ...] = ()
    cite_for: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    equations: tuple[Annotated[str, StringConstraints(pattern=r"^tests/[\w/]+\.py::test_\w+$")], ...] = ()
    code: tuple[Code, ...] = ()
    checkpoint: tuple[Checkpoint, ...] = ()
    trajectory: tuple[Trajectory, ...] = ()


@cache
def audits() -> dict[str, Audit]:
    """Return page of a method → its comparisons, sorted by page."""
    contents = {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(_FILES.glob("*.toml"))}
    return {page: Audit.model_validate({**content, "page": page}) for page, content in contents.items()}


def method_keys(recipe: str) -> tuple[str, ...]:
    """Return the keys in `references.bib` of a recipe's methods, without those of recipes that it extends.

    A recipe in a directory, such as "mini/ifcl_en", has the methods of the recipe with its name outside it.
    """
    names = dict.fromkeys((recipe, recipe.rpartition("/")[2]))
    pairs = [(audit, name) for audit in audits().values() for name in names]
    keys = ((audit.cite if name in audit.recipes else ()) + audit.cite_for.get(name, ()) for audit, name in pairs)
    return tuple(dict.fromkeys(chain.from_iterable(keys)))


@dataclass(frozen=True)
class Badge:
    """Checks of one recipe of the package, those of its method's `Audit` first. A fact without a check is empty."""

    recipe: str
    page: str = ""
    equations: tuple[str, ...] = ()
    code: tuple[Code, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    others: tuple[Reproduction, ...] = ()
    """One for each source."""
    measured: MeasuredRow | None = None

    def __bool__(self) -> bool:
        """Return whether any check was done."""
        return bool(
            self.equations or self.code or self.trajectories or self.checkpoints or self.others or self.measured
        )

    @property
    def line(self) -> str:
        """Short form for lists, such as "equations, code 22/22 @23d5ebe". Empty without checks."""
        words = [
            "equations" if self.equations else "",
            *(
                f"{'' if one.authors else 'other '}code {one.agree}/{one.compared} @{one.commit[:7]}"
                for one in self.code
            ),
            *(f"trajectory {power(one.fp32.loss)}" for one in self.trajectories),
            "checkpoint" if self.checkpoints else "",
            f"{_counted(sum(one.n for one in self.others), 'run')} by others" if self.others else "",
            f"{_counted(len(self.measured.seeds), 'seed')} here" if self.measured else "",
        ]
        return ", ".join(filter(None, words))

    @property
    def lines(self) -> tuple[str, ...]:
        """One line for each check, and a last one that names the facts without a check."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        if self.equations:
            yield f"equations: {_counted(len(self.equations), 'test')} with the formula written out"
        for one in self.code:
            whose = "the authors' code" if one.authors else "code of others"
            agreement = f"{one.agree} of {_counted(one.compared, 'point')} agree"
            yield f"code: {one.repository} @{one.commit[:7]} ({whose}), {agreement}, read {one.read} by {one.by}"
            if one.differences:
                points = f"{', '.join(one.documented)} in docs/methods" if one.documented else "registry/papers/audits"
                suffix = "md" if one.documented else "toml"
                yield f"differences: {len(one.differences)}, see {points}/{self.page}.{suffix}"
        for pair in self.trajectories:
            program = f"{pair.repository.partition('/')[2]}@{pair.commit[:7]}"
            yield f"trajectory: {program}, {_counted(pair.steps, 'step')}, {power(pair.fp32.loss)}"
        for checkpoint in self.checkpoints:
            scores = ", ".join(f"{name} {score:.2f}" for name, score in checkpoint.scores.items())
            yield f"checkpoint: {checkpoint.model}, {scores} ({checkpoint.date}, {checkpoint.machine})"
        if self.others:
            run = max(self.others, key=lambda one: one.n)
            score = "" if run.score == AVERAGE else f"{run.score} "
            span = f"{run.mean:.2f}" if run.n == 1 else f"{run.mean:.2f} ({run.low:.2f} to {run.high:.2f})"
            yield f"{_counted(run.n, 'run')} by others, not with cse: {score}{span}, {run.source}"
            if more := sum(one.n for one in self.others) - run.n:
                yield f"{_counted(more, 'more run')} by others: see docs/reference/papers.md"
        if self.measured:
            seeds = _counted(len(self.measured.seeds), "seed")
            yield f"measured with cse: {seeds} on {self.measured.date}, for a recipe that no paper reports"
        facts = {
            "equations": self.equations, "code": self.code, "trajectory": self.trajectories,
            "authors' checkpoint": self.checkpoints,
        }  # fmt: skip
        missing = [name for name, done in facts.items() if not done]
        yield f"not checked: {', '.join([*missing, 'reported number with cse'])}"

    def document(self) -> dict[str, Any]:
        """Return the badge as JSON writes it."""
        return {
            "recipe": self.recipe,
            "page": self.page or None,
            "line": self.line,
            "equations": list(self.equations),
            "code": [one.model_dump(mode="json") for one in self.code],
            "trajectories": [one.model_dump(mode="json") for one in self.trajectories],
            "checkpoints": [one.model_dump(mode="json") for one in self.checkpoints],
            "runs_by_others": [one.model_dump(mode="json") for one in self.others],
            "measured": None if self.measured is None else self.measured.model_dump(mode="json"),
        }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def badge_of(recipe: str) -> Badge:
    """Return the badge of a recipe of the package. It is empty for a recipe that only extends a checked one."""
    found: dict[str, Reproduction] = {}
    for run in reproductions():
        if run.recipe == recipe and (run.source not in found or run.score == AVERAGE):
            found[run.source] = run
    others, measured = tuple(found.values()), measured_rows().get(recipe)
    audit = next((one for one in audits().values() if recipe in one.recipes), None)
    if audit is None:
        return Badge(recipe, others=others, measured=measured)
    code = tuple(one for one in audit.code if not one.recipes or recipe in one.recipes)
    trained = tuple(one for one in audit.trajectory if one.recipe == recipe)
    scored = tuple(one for one in audit.checkpoint if one.recipe == recipe)
    return Badge(recipe, audit.page, audit.equations, code, trained, scored, others, measured)


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
