"""Badge of a recipe: the checks that were done, in one line or in several. `docs/fidelity.md` explains the words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.papers.audits import Checkpoint, Code, audit_of
from registry.papers.measured import MeasuredRow, measured_rows
from registry.papers.others import Reproduction, reproductions
from registry.papers.tables import AVERAGE


@dataclass(frozen=True)
class Badge:
    """Checks of one recipe of the package. A fact without a check is empty.

    Args:
        recipe: Name of the recipe.
        page: Page of the method in `docs/methods/`, or empty.
        equations: Tests of values against formulas that the test writes out.
        code: Comparisons with code, point by point.
        checkpoints: Scores of the authors' checkpoints, computed with this project.
        others: Published runs of the method by other groups, without this project. One for each source.
        measured: Runs of this project, which belong to no reported number, or None.
    """

    recipe: str
    page: str = ""
    equations: tuple[str, ...] = ()
    code: tuple[Code, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    others: tuple[Reproduction, ...] = ()
    measured: MeasuredRow | None = None

    def __bool__(self) -> bool:
        """Return whether any check was done."""
        return bool(self.equations or self.code or self.checkpoints or self.others or self.measured)

    @property
    def line(self) -> str:
        """Short form for lists, such as "equations, code 22/22 @23d5ebe". Empty without checks."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        if self.equations:
            yield "equations"
        for one in self.code:
            yield f"{'' if one.authors else 'other '}code {one.agree}/{one.compared} @{one.commit[:7]}"
        if self.checkpoints:
            yield "checkpoint"
        if self.others:
            yield f"{_counted(sum(one.n for one in self.others), 'run')} by others"
        if self.measured:
            yield f"{_counted(len(self.measured.seeds), 'seed')} here"

    @property
    def lines(self) -> tuple[str, ...]:
        """One line for each check, and a last one that names the facts without a check."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        if self.equations:
            yield f"equations: {_counted(len(self.equations), 'test')} with the formula written out"
        for one in self.code:
            yield from _code_lines(one, self.page)
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
        facts = {"equations": self.equations, "code": self.code, "authors' checkpoint": self.checkpoints}
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
            "checkpoints": [one.model_dump(mode="json") for one in self.checkpoints],
            "runs_by_others": [one.model_dump(mode="json") for one in self.others],
            "measured": None if self.measured is None else self.measured.model_dump(mode="json"),
        }


def _code_lines(one: Code, page: str) -> Iterator[str]:
    whose = "the authors' code" if one.authors else "code of others"
    agreement = f"{one.agree} of {_counted(one.compared, 'point')} agree"
    yield f"code: {one.repository} @{one.commit[:7]} ({whose}), {agreement}, read {one.read} by {one.by}"
    if one.documented:
        points = ", ".join(one.documented)
        yield f"differences: {len(one.differences)}, see {points} in docs/methods/{page}.md"
    elif one.differences:
        yield f"differences: {len(one.differences)}, see registry/papers/audits/{page}.toml"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def badge_of(recipe: str) -> Badge:
    """Return the badge of a recipe of the package. It is empty for a recipe that only extends a checked one."""
    found: dict[str, Reproduction] = {}
    for run in reproductions():
        if run.recipe == recipe and (run.source not in found or run.score == AVERAGE):
            found[run.source] = run
    others, measured = tuple(found.values()), measured_rows().get(recipe)
    if (audit := audit_of(recipe)) is None:
        return Badge(recipe, others=others, measured=measured)
    scored = tuple(one for one in audit.checkpoint if one.recipe == recipe)
    return Badge(recipe, audit.page, audit.equations, audit.code_of(recipe), scored, others, measured)
