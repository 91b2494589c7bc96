"""The figure of a study: its score against a setting, a measure or names, ours and the paper's; or curves by step."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from cse_cli.analysis.figures import GUIDE, STEPS, add_legend, axis_by_step, line_style
from cse_cli.analysis.paper_tables import StudyRuns
from cse_cli.analysis.run_figures import unit
from cse_cli.core.plotting import COLUMN, OURS, PAGE, PAPER, Heading, house_style, new_figure, save
from cse_cli.core.results import Result, metric_value
from cse_cli.recipe.cells import Cell, paper_table
from cse_cli.recipe.load import load
from cse_cli.recipe.paths import setting
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import FigureSpec
from registry import papers
from registry.papers import AVERAGE

ROW, STEP, MEASURE = "row", "step", "measures."
"""What a figure's x may be beside a dotted path."""
SECTIONS = ("data", "train", "evaluate")
"""Tables of a recipe that are no component: a setting's name says enough there."""
MEAN = "mean Spearman × 100"
NAMED = 2
"""Most recipes that a heading names."""
LETTERS = 24
"""Letters of a name on one line."""
SPARE = 0.12
"""Part of a range left free at both of its ends."""
ROOM = 2.0
"""Times the wider of two ranges that one axis may hold: beyond it, each gets a panel."""
DECADES = 100.0
"""Quotient of the ends of a logarithmic axis from which only powers of ten are written below it."""
SAME = 0.005
"""Difference below which levels before training print alike."""

Range = tuple[float, float]
MeanStd = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """One setting: a printed number and our runs of it.

    Args:
        x: Its place on the axis; None for a setting that has none, such as a component left out.
        label: Its name.
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
    def ours(self) -> MeanStd | None:
        """Mean and standard deviation over the seeds, 0 for one seed; None without runs."""
        return mean_std(self.values) if self.values else None


@dataclass(frozen=True)
class Curve:
    """One setting while it trained.

    Args:
        label: Its name.
        steps: Those at which every seed was scored.
        scores: One list a seed, in the order of `steps`.
        before: Score of each seed before the first step, where it is known.
    """

    label: str
    steps: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    before: tuple[float, ...]

    @property
    def best(self) -> str:
        """How high the seeds came, each at its own best step, and when that was."""
        tops = [max(zip(scores, (-step for step in self.steps), strict=True)) for scores in self.scores]
        score, step = mean_std([top for top, _ in tops]), mean_std([-float(negative) for _, negative in tops])
        if len(tops) == 1:
            return f"best {score[0]:.2f} at step {step[0]:.0f}"
        return f"best {score[0]:.2f} ± {score[1]:.2f} at step {step[0]:.0f} ± {step[1]:.0f}"


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return the mean and the sample standard deviation, 0 for one value."""
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def curve_of(label: str, runs: Sequence[Result]) -> Curve | None:
    """Return the dev score by step of runs that are selected by one metric; None where no step has all of them."""
    steps = [step for step in sorted(runs[0].curve) if all(_scored(run, step) for run in runs)] if runs else []
    before = [metric_value(run.untrained, run.select or "") for run in runs]
    scores = tuple(tuple(run.curve[step] for step in steps) for run in runs)
    return Curve(label, tuple(steps), scores, tuple(b for b in before if b is not None)) if steps else None


def _scored(run: Result, step: int) -> bool:
    return step in run.curve and isfinite(run.curve[step])


class StudyPoints:
    """What the figure of a study shows: runs of its cells as they are today."""

    def __init__(self, runs: StudyRuns) -> None:
        self.study = runs.study
        self.figure = runs.study.figure or FigureSpec(x=ROW)
        self.cells = [cell for cell, _ in runs.cells]
        self.table = paper_table(runs.study)
        self.current = runs.current
        self._sideways = len({cell.row for cell in self.cells}) == 1 and len(self.cells) > 1
        """Whether the settings stand beside each other in one row, not below each other."""

    def points(self) -> list[Point]:
        """Return a point for each printed number, or cell where none are printed; none without what it measures."""
        found = [point for cell in self.cells for point in self._points(cell)]
        if self.figure.x.startswith(MEASURE):
            found = [point for point in found if point.x is not None]
        several = len({point.line for point in found}) > 1
        return found if several else [replace(point, line="") for point in found]  # a single line needs no name

    def curves(self) -> list[Curve]:
        """Return the dev score by step of each cell that has one."""
        found = []
        for cell in self.cells:
            runs = [run for run in self.current.get(cell.hash, ()) if self.figure.y in (None, run.select)]
            found.append(curve_of(self._label(cell, cell.columns), [run for run in runs if run.curve]))
        return [curve for curve in found if curve is not None]

    def scores(self) -> list[str]:
        """Return "evaluator.metric" or "avg" of everything that is drawn, once each."""
        return list(dict.fromkeys(self.score(heading) for cell in self.cells for heading in self._headings(cell)))

    def score(self, heading: str) -> str:
        """Return "evaluator.metric" or "avg" of a printed column; empty where nothing says it."""
        of_study = next((column.score for column in self.study.columns if heading in column.names), None)
        if self.figure.y or of_study:
            return self.figure.y or of_study or ""
        columns = self.table.columns if self.table else ()
        printed = next((column for column in columns if column.name == heading), None)
        if self.table and printed and printed.evaluator:
            own = f"{printed.evaluator}.{self.table.score_of(printed)}"
            return AVERAGE if printed.evaluator == AVERAGE else own
        return self.study.score or ""

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
                printed=self.table.values(cell.row)[heading] if self.table and heading else None,
            )

    def _headings(self, cell: Cell) -> tuple[str, ...]:
        """Return the printed columns that a cell scores; only those that we have a score for."""
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


def draw_study(runs: StudyRuns, folder: Path) -> list[Path]:
    """Write, as SVG and as PNG, the figure that a study asks for; return the files: none without anything to draw.

    Args:
        runs: Of the study; its runs as the recipes are today count.
        folder: Made if missing. The files are named after the study.
    """
    with house_style():
        figure = study_figure(runs)
        if figure is None:
            return []
        folder.mkdir(parents=True, exist_ok=True)
        return save(figure, folder / runs.study.name.rpartition("/")[2])


def study_figure(runs: StudyRuns) -> Figure | None:
    """Return the figure that a study asks for, None without anything to draw; to be drawn and saved inside `styled`."""
    if runs.study.figure is None or not runs.current:
        return None
    spec, found = runs.study.figure, StudyPoints(runs)
    heading = _heading(found)
    if spec.x == STEP:
        curves = found.curves()
        ylabel = spec.ylabel or _score_name(spec.y or runs.study.score or "")
        return draw_curves(curves, spec.xlabel or STEP, ylabel, heading) if curves else None
    points = found.points()
    if not any(point.values for point in points):
        return None
    score = spec.ylabel or " or ".join(dict.fromkeys(_score_name(score) for score in found.scores() if score))
    if spec.x == ROW:
        return _draw_names(points, score, _paper_name(found), heading)
    return _draw_sweep(points, spec, score, _paper_name(found), heading)


def _heading(found: StudyPoints) -> Heading:
    """Return the title, which recipes ran with how many seeds, and how much of the study is still missing."""
    counts = [len(runs) for runs in found.current.values()]
    least, most = min(counts), max(counts)
    seeds = f"{least} seed{'s' if most > 1 else ''}" if least == most else f"{least} to {most} seeds"
    spread = "" if most == 1 else ", mean ± standard deviation"
    whole = len({cell.hash for cell in found.cells})
    notes = [] if len(counts) == whole else [f"{len(counts)} of {whole} settings have finished runs"]
    names = list(dict.fromkeys(cell.recipe for cell in found.cells if cell.hash in found.current))
    recipes = ", ".join(names) if len(names) <= NAMED else f"{len(names)} recipes"
    if found.study.answers is not None:
        paper = papers.load(found.study.answers[0])
        figure = paper.figures.get(found.study.answers[1])
        quoted = figure.quoted if figure else ()
        numbers = [f"{q.what} {q.value:,g}" + (f" to {q.high:,g}" if q.high is not None else "") for q in quoted]
        notes += [f"{paper.short}, Figure {figure.number}: {', '.join(numbers)}"] if figure and numbers else []
    return Heading(found.study.title, f"{recipes}; {seeds}{spread}", "; ".join(notes))


def _score_name(score: str) -> str:
    return MEAN if score == AVERAGE else unit(score.rpartition(".")[2])


def _paper_name(found: StudyPoints) -> str:
    """Return the table whose numbers are printed beside ours."""
    if found.study.answers is None:
        return ""
    key, identifier = found.study.answers
    paper = papers.load(key)
    return f"{paper.short}, {paper.tables[identifier].title}" if identifier in paper.tables else paper.short


@dataclass(frozen=True)
class Series:
    """Our numbers, or the paper's.

    Args:
        name: Above its panel, or in the legend.
        number: Point → mean and standard deviation, None where there is no number.
        style: Of its points, where there is but one line.
        span: What means and deviations reach.
    """

    name: str
    number: Callable[[Point], MeanStd | None]
    style: dict[str, Any]
    span: Range


def _series(points: Sequence[Point], paper: str) -> tuple[list[Series], int]:
    """Return ours and, where anything is printed, the paper's; and how many panels show them."""
    printed = {"color": PAPER, "marker": "s", "linestyle": (0, (4, 2)), "markerfacecolor": "white"}
    found: list[Series] = []
    for name, number, style in (
        ("this study", lambda point: point.ours, {"color": OURS, "marker": "o", "linestyle": "-"}),
        (paper, lambda point: None if point.printed is None else (point.printed, 0.0), printed),
    ):
        numbers = [each for point in points if (each := number(point))]
        if numbers:
            span = min(mean - std for mean, std in numbers), max(mean + std for mean, std in numbers)
            found.append(Series(name, number, style, span))
    placed = [point for point in points if point.x is not None] or points
    one_line = len({point.line for point in placed}) == 1
    return found, 1 if one_line and fit_together([one.span for one in found]) else len(found)


def fit_together(ranges: Sequence[Range]) -> bool:
    """Tell whether one axis shows all ranges without pressing any flat."""
    widest = max(high - low for low, high in ranges)
    return max(high for _, high in ranges) - min(low for low, _ in ranges) <= ROOM * widest


def equal_spans(ranges: Sequence[Range]) -> list[Range]:
    """Return a range around each one, all of one length: a point more looks the same in every panel."""
    half = (max(high - low for low, high in ranges) or 1.0) * (0.5 + SPARE)
    return [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in ranges]


def _draw_sweep(points: Sequence[Point], spec: FigureSpec, score: str, paper: str, heading: Heading) -> Figure:
    """Return ours and the paper's in one panel where their scores lie close, else below each other with equal spans.

    A second axis would let the choice of its scale decide how alike both look; with equal spans slopes can be compared.
    """
    series, panels = _series(points, paper)
    figure = new_figure(heading, height=0.4 + (1.4 if panels > 1 else 1.8) * panels)
    every = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    joined = not spec.x.startswith(MEASURE) or spec.lines is not None
    _draw_series(every, series, [(point.x, point) for point in points if point.x is not None], "y", joined=joined)
    for place, one in enumerate(series):
        _draw_levels(
            every[place % panels], [(p.label, found) for p in points if p.x is None and (found := one.number(p))]
        )
    add_legend(figure)
    axis = every[-1].xaxis
    if spec.log_x:
        placed = [point.x for point in points if point.x is not None]
        every[-1].set_xscale("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(placed) < DECADES * min(placed) else (1,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    every[-1].set_xlabel(spec.xlabel or spec.x.removeprefix(MEASURE))
    figure.supylabel(score, fontsize=7.5) if panels > 1 else every[0].set_ylabel(score)
    return figure


def _draw_levels(axes: Axes, levels: Sequence[tuple[str, MeanStd]]) -> None:
    """Draw a level for each setting that has no place on the axis, such as one without the component."""
    for place, (label, (mean, std)) in enumerate(levels):
        style = line_style(-1 - place) | {"marker": "none", "linewidth": 0.9, "zorder": 1}
        axes.axhline(mean, label=label, **style)
        axes.axhspan(mean - std, mean + std, color=style["color"], alpha=0.1, linewidth=0)


def _draw_names(points: Sequence[Point], score: str, paper: str, heading: Heading) -> Figure:
    """Return a row a setting: both in one panel where scores lie close, else beside each other with equal spans."""
    series, panels = _series(points, paper)
    names = list(dict.fromkeys(point.label for point in points))
    wrapped = [textwrap.fill(name, LETTERS) for name in names]
    tall = 0.06 + 0.13 * max(1 + name.count("\n") for name in wrapped)
    figure = new_figure(heading, PAGE if panels > 1 else COLUMN, 0.7 + tall * len(names))
    every = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    _draw_series(every, series, [(names.index(point.label), point) for point in points], "x", joined=False)
    add_legend(figure)
    for axes in every:
        axes.set_xlabel(score)
    every[0].set_yticks(range(len(names)), wrapped, parse_math=False)
    every[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def _draw_series(
    every: Sequence[Axes], series: Sequence[Series], placed: Sequence[tuple[float, Point]], scores: str, *, joined: bool
) -> None:
    """Draw each line of each series with the deviations of its points, in one panel or in one for each series.

    Args:
        every: The panels.
        series: What they show.
        placed: Points with their places on the other axis.
        scores: Axis of the scores: "x" or "y".
        joined: Whether the points of a line are joined.
    """
    lines = list(dict.fromkeys(point.line for _, point in placed))
    spans = equal_spans([one.span for one in series])
    for panel, (one, span) in enumerate(zip(series, spans, strict=True)):
        axes = every[panel % len(every)]
        for number, line in enumerate(lines):
            own = sorted((at, *found) for at, point in placed if point.line == line and (found := one.number(point)))
            style = dict(one.style if len(lines) == 1 else line_style(number)) | (
                {} if joined else {"linestyle": "none"}
            )
            if own:
                at, mean, std = zip(*own, strict=True)
                label = one.name if len(every) < len(series) else line
                x, y = (mean, at) if scores == "x" else (at, mean)
                bars: dict[str, Any] = {f"{scores}err": std, "capsize": 2, "elinewidth": 0.8} if any(std) else {}
                axes.errorbar(x, y, label=label or None, zorder=3, **bars, **style)
        (axes.xaxis if scores == "x" else axes.yaxis).set_major_locator(MaxNLocator(5, steps=STEPS))
        if len(every) > 1:
            axes.set_title(one.name, loc="left", fontsize=7, parse_math=False)
            (axes.set_xlim if scores == "x" else axes.set_ylim)(span)
    for axes in every:
        axes.grid()


def draw_curves(curves: Sequence[Curve], xlabel: str, ylabel: str, heading: Heading) -> Figure:
    """Return the mean over the seeds by step in a band of one standard deviation, its highest point marked."""
    figure = new_figure(heading, height=2.1 + 0.13 * len(curves))
    axes = figure.add_subplot()
    for place, curve in enumerate(curves):
        at_steps = [mean_std(scores) for scores in zip(*curve.scores, strict=True)]
        means = [mean for mean, _ in at_steps]
        style, best = line_style(place), means.index(max(means))
        mark: dict[str, Any] = {
            "markevery": [best],
            "markersize": 5.5,
            "markerfacecolor": "white",
            "markeredgewidth": 1.2,
        }
        axes.plot(curve.steps, means, label=f"{curve.label}: {curve.best}", zorder=3, **style, **mark)
        if len(curve.scores) > 1:
            low, high = ([mean + sign * std for mean, std in at_steps] for sign in (-1, 1))
            axes.fill_between(curve.steps, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2)
    before = [score for curve in curves for score in curve.before]
    # Encoders that differ start from levels that do: then no single line would be true.
    if before and max(before) - min(before) < SAME:
        axes.axhline(fmean(before), label=f"untrained: {fmean(before):.2f}", **GUIDE)
    axis_by_step(axes, xlabel, ylabel)
    add_legend(figure)
    return figure
