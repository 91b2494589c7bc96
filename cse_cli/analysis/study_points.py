"""Points and curves of a study's figure, from its runs and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean, stdev

from cse_cli.analysis.paper_tables import StudyRuns
from cse_cli.core.results import Result, metric_value
from cse_cli.recipe.cells import Cell, paper_table
from cse_cli.recipe.load import load
from cse_cli.recipe.paths import setting
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import FigureSpec
from registry.papers import AVERAGE

ROW, STEP, MEASURE = "row", "step", "measures."
"""Values of a figure's `x` that are not a setting. The last one is a prefix."""
SECTIONS = ("data", "train", "evaluate")
"""Sections of a recipe whose settings need no component name in a label."""

MeanStd = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """One setting: the reported number, and the score of each seed.

    `x` is None if the setting has no value, such as a removed component. `line` is the name of the line that connects
    the point with others.
    """

    x: float | None
    label: str
    line: str
    values: tuple[float, ...]
    reported: float | None = None

    @property
    def measured(self) -> MeanStd | None:
        """Mean and standard deviation over the seeds, or None without runs."""
        return mean_std(self.values) if self.values else None

    @property
    def in_paper(self) -> MeanStd | None:
        """Reported number without a standard deviation."""
        return None if self.reported is None else (self.reported, 0.0)


@dataclass(frozen=True)
class Curve:
    """Training curves of one setting: scores of each seed at the steps that all have, and before the first step."""

    label: str
    steps: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    before: tuple[float, ...]

    @property
    def best(self) -> str:
        """Best score and its step, with mean and standard deviation over the seeds."""
        tops = [max(zip(scores, (-step for step in self.steps), strict=True)) for scores in self.scores]
        (score, score_std), (step, step_std) = (mean_std([top[place] for top in tops]) for place in (0, 1))
        if len(tops) == 1:
            return f"best {score:.2f} at step {-step:.0f}"
        return f"best {score:.2f} ± {score_std:.2f} at step {-step:.0f} ± {step_std:.0f}"


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return the mean and the sample standard deviation, which is 0 for one value."""
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def curve_of(label: str, runs: Sequence[Result]) -> Curve | None:
    """Return the dev score by step of runs with the same metric, or None if they have no step in common."""
    steps = sorted(set.intersection(*(set(_finite_steps(run)) for run in runs))) if runs else []
    before = [metric_value(run.untrained, run.metric_for_best_model or "") for run in runs]
    scores = tuple(tuple(run.curve[step] for step in steps) for run in runs)
    return Curve(label, tuple(steps), scores, tuple(b for b in before if b is not None)) if steps else None


def _finite_steps(run: Result) -> list[int]:
    return [step for step, score in run.curve.items() if isfinite(score)]


class StudyPoints:
    """Points and curves of a study's figure, from the runs with the current settings of its cells."""

    def __init__(self, runs: StudyRuns) -> None:
        self.study = runs.study
        self.figure = runs.study.figure or FigureSpec(x=ROW)
        self.cells = [cell for cell, _ in runs.cells]
        self.table = paper_table(runs.study)
        self.current = runs.current
        self._sideways = len({cell.row for cell in self.cells}) == 1 and len(self.cells) > 1
        """Whether the settings are the columns of a table, not its rows."""

    def points(self) -> list[Point]:
        """Return a point for each reported number, or for each cell if the study has no paper."""
        found = [point for cell in self.cells for point in self._points(cell)]
        if self.figure.x.startswith(MEASURE):
            found = [point for point in found if point.x is not None]
        several = len({point.line for point in found}) > 1
        return found if several else [replace(point, line="") for point in found]

    def curves(self) -> list[Curve]:
        """Return the dev score by step of each cell that has one."""
        found = []
        for cell in self.cells:
            runs = [
                run for run in self.current.get(cell.hash, ()) if self.figure.y in (None, run.metric_for_best_model)
            ]
            found.append(curve_of(self._label(cell, cell.columns), [run for run in runs if run.curve]))
        return [curve for curve in found if curve is not None]

    def scores(self) -> list[str]:
        """Return the different scores of the figure, as "evaluator.metric" or "avg"."""
        return list(dict.fromkeys(self.score(heading) for cell in self.cells for heading in self._headings(cell)))

    def score(self, heading: str) -> str:
        """Return "evaluator.metric" or "avg" of a reported column. Empty if it is unknown."""
        of_study = next((column.score for column in self.study.columns if heading in column.names), None)
        if self.figure.y or of_study:
            return self.figure.y or of_study or ""
        columns = self.table.columns if self.table else ()
        column = next((column for column in columns if column.name == heading), None)
        if self.table is None or column is None or not column.evaluator:
            return self.study.score or ""
        return AVERAGE if column.evaluator == AVERAGE else f"{column.evaluator}.{self.table.score_of(column)}"

    def _points(self, cell: Cell) -> Iterator[Point]:
        recipe = load(cell.recipe, cell.overrides, cell.unset).recipe
        runs = self.current.get(cell.hash, [])
        for heading in self._headings(cell):
            values = [metric_value(run.scores, self.score(heading)) for run in runs]
            yield Point(
                x=self._x(recipe, runs),
                label=self._label(cell, (heading,) if heading else ()),
                line=self._line(recipe, heading),
                values=tuple(value for value in values if value is not None and isfinite(value)),
                reported=self.table.values(cell.row)[heading] if self.table and heading else None,
            )

    def _headings(self, cell: Cell) -> tuple[str, ...]:
        """Return the reported columns for which a cell has a score."""
        if cell.columns or self.table is None:
            return cell.columns or ("",)
        return tuple(column.name for column in self.table.columns if self.score(column.name)) or ("",)

    def _x(self, recipe: Recipe, runs: Sequence[Result]) -> float | None:
        if self.figure.x.startswith(MEASURE):
            measured = [run.measures.get(self.figure.x.removeprefix(MEASURE)) for run in runs]
            known = [value for value in measured if value is not None]
            x = fmean(known) if known else None
        else:
            x = setting(recipe, self.figure.x)
        return float(x) if isinstance(x, int | float) and (x > 0 or not self.figure.log_x) else None

    def _line(self, recipe: Recipe, heading: str) -> str:
        if self.figure.lines is None:
            return "" if self._sideways else heading
        found = setting(recipe, self.figure.lines)
        if found is None or isinstance(found, str):
            return found or ""
        names = self.figure.lines.split(".")
        component = names[-2:] if names[0] not in SECTIONS else names[-1:]
        return f"{' '.join(component).replace('_', ' ')} {found:g}"

    def _label(self, cell: Cell, headings: Sequence[str]) -> str:
        return ", ".join(headings) if self._sideways and headings else cell.row
