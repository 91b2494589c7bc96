"""What a study has to show: from its cells and their finished runs to the points and curves of its figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import fmean, stdev

from cse_cli.core.results import STS_TASKS, Result, Scores, average
from cse_cli.recipe.cells import Cell, table_of
from cse_cli.recipe.load import load
from cse_cli.recipe.paths import setting
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import FigureSpec, Study
from registry.papers import AVERAGE

ROW, STEP, MEASURE = "row", "step", "measures."
"""What a figure's x may be beside a dotted path."""
SECTIONS = ("data", "train", "evaluate")
"""Tables of a recipe that are no component: a setting's name says enough there."""


@dataclass(frozen=True)
class Point:
    """One setting: a printed number and our runs of it.

    Args:
        x: Where it stands; None for what has no place on the axis.
        label: What it is called where there is no axis.
        line: Points of one line are joined.
        values: One a seed.
        printed: The paper's number.
    """

    x: float | None
    label: str
    line: str
    values: tuple[float, ...]
    printed: float | None = None

    @property
    def ours(self) -> tuple[float, float] | None:
        """Mean and standard deviation over the seeds, 0 for one seed; None without runs."""
        return spread(self.values) if self.values else None


@dataclass(frozen=True)
class Curve:
    """One setting while it trained.

    Args:
        label: What it is called.
        steps: Those at which every seed was scored.
        scores: One list a seed, in the order of `steps`.
        before: Score of each seed before the first step, where it is known.
        selected: Step whose state was kept, one a seed.
    """

    label: str
    steps: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    before: tuple[float, ...]
    selected: tuple[int, ...]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, 0 for one value."""
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


class Findings:
    """A study's cells with the runs that belong to them: those of the same recipe as it is today.

    Args:
        study: Has a figure.
        cells: Of the study.
        results: Finished runs, of anything; of two with one seed the later counts.
    """

    def __init__(self, study: Study, cells: Sequence[Cell], results: Iterable[Result]) -> None:
        self.study = study
        self.figure: FigureSpec = study.figure or FigureSpec(x=ROW)
        self.cells = tuple(cells)
        self.table = table_of(study)
        self._runs: dict[str, dict[int, Result]] = {}
        for result in sorted(results, key=lambda result: result.finished):
            self._runs.setdefault(result.recipe_hash, {})[result.seed] = result

    def runs(self, cell: Cell) -> list[Result]:
        """Return the finished runs of a cell, by seed."""
        found = self._runs.get(cell.hash, {})
        return [found[seed] for seed in sorted(found)]

    def finished(self) -> list[list[Result]]:
        """Return the runs of every experiment that has any; cells of one recipe share theirs."""
        return [runs for cell in {cell.hash: cell for cell in self.cells}.values() if (runs := self.runs(cell))]

    def points(self) -> list[Point]:
        """Return a point for each printed number, or cell where none are printed; none without what it measures."""
        found = [point for cell in self.cells for point in self._points(cell)]
        if self.figure.x.startswith(MEASURE):
            found = [point for point in found if point.x is not None]
        lines = {point.line for point in found}
        return found if len(lines) > 1 else [_renamed(point) for point in found]

    def curves(self) -> list[Curve]:
        """Return the dev score by step of each cell that has one."""
        score = self.figure.y
        found = []
        for cell in self.cells:
            runs = [run for run in self.runs(cell) if run.curve and score in (None, run.select)]
            steps = (
                tuple(step for step in sorted(runs[0].curve) if all(_scored(run, step) for run in runs)) if runs else ()
            )
            if steps:
                before = [value(run.untrained, run.select or "") for run in runs]
                found.append(
                    Curve(
                        label=self._label(cell, cell.columns),
                        steps=steps,
                        scores=tuple(tuple(run.curve[step] for step in steps) for run in runs),
                        before=tuple(score for score in before if score is not None),
                        selected=tuple(run.selected_step for run in runs if run.selected_step is not None),
                    )
                )
        return found

    def scores(self) -> list[str]:
        """Return "evaluator.metric" or "avg" of everything that is drawn, once each."""
        return list(dict.fromkeys(self.score(heading) for cell in self.cells for heading in self._headings(cell)))

    def _points(self, cell: Cell) -> Iterator[Point]:
        recipe = load(cell.recipe, cell.overrides, cell.unset).recipe
        runs = self.runs(cell)
        for heading in self._headings(cell):
            score = self.score(heading)
            values = (value(run.scores, score) for run in runs)
            yield Point(
                x=self._x(recipe, runs),
                label=self._label(cell, (heading,) if heading else ()),
                line=self._line(recipe, heading),
                values=tuple(each for each in values if each is not None and isfinite(each)),
                printed=self.table.values(cell.row)[heading] if self.table and heading else None,
            )

    def _headings(self, cell: Cell) -> tuple[str, ...]:
        """Return the printed columns that a cell scores; those alone that we have a score for."""
        if cell.columns or self.table is None:
            return cell.columns or ("",)
        return tuple(column.name for column in self.table.columns if self.score(column.name)) or ("",)

    def score(self, heading: str) -> str:
        """Return "evaluator.metric" or "avg" of a printed column; empty where nothing says it."""
        said = [column.score for column in self.study.columns if heading in column.names]
        printed = (
            next((column for column in self.table.columns if column.name == heading), None) if self.table else None
        )
        if self.figure.y or (said and said[0]):
            return self.figure.y or said[0] or ""
        if self.table and printed and printed.evaluator:
            own = f"{printed.evaluator}.{self.table.score_of(printed)}"
            return AVERAGE if printed.evaluator == AVERAGE else own
        return self.study.score or ""

    def _x(self, recipe: Recipe, runs: Sequence[Result]) -> float | None:
        asked = self.figure.x
        if asked.startswith(MEASURE):
            measured = [run.measures.get(asked.removeprefix(MEASURE)) for run in runs]
            known = [each for each in measured if each is not None]
            place = fmean(known) if known else None
        else:
            place = setting(recipe, asked)
        on_axis = isinstance(place, int | float) and (place > 0 or not self.figure.log_x)
        return float(place) if place is not None and on_axis else None

    def _line(self, recipe: Recipe, heading: str) -> str:
        if self.figure.lines is None:
            return "" if self._sideways else heading
        found = setting(recipe, self.figure.lines)
        if found is None or isinstance(found, str):
            return found or ""
        names = self.figure.lines.split(".")
        component = names[-2:] if names[0] not in SECTIONS else names[-1:]
        return f"{' '.join(component).replace('_', ' ')} {found:g}"

    @property
    def _sideways(self) -> bool:
        """Whether the settings stand beside each other in one row, not below each other."""
        return len({cell.row for cell in self.cells}) == 1 and len(self.cells) > 1

    def _label(self, cell: Cell, headings: Sequence[str]) -> str:
        return ", ".join(headings) if self._sideways and headings else cell.row


def value(scores: Scores, score: str) -> float | None:
    """Return "evaluator.metric" of a run's scores, or as "avg" the papers' average of the seven English sets."""
    if score == AVERAGE:
        return average(scores, STS_TASKS, "spearman")
    evaluator, _, metric = score.rpartition(".")
    return scores.get(evaluator, {}).get(metric)


def _scored(run: Result, step: int) -> bool:
    return isfinite(run.curve.get(step, nan))


def _renamed(point: Point) -> Point:
    """Return a point of the only line there is, which needs no name."""
    return Point(point.x, point.label, "", point.values, point.printed)
