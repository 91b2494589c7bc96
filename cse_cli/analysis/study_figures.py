"""The figure of a study: scores by setting, by row or by step, or the differences between rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from cse_cli.analysis.compare import NONE, compare_rows
from cse_cli.analysis.compare_view import BASELINE, OVERLAP, Line, baseline_of, summary_lines
from cse_cli.analysis.tables import StudyRuns
from cse_cli.core.formatting import counted
from cse_cli.core.plotting import (
    BLACK,
    CHOSEN,
    COLUMN,
    GUIDE,
    LETTER,
    MEASURED,
    PAGE,
    PAPER,
    STEPS,
    UNTRAINED,
    Heading,
    add_legend,
    label_axes,
    label_steps,
    line_style,
    new_figure,
    score_name,
)
from cse_cli.core.results import Result
from cse_cli.recipe import cells
from cse_cli.recipe.study import FigureSpec
from cse_cli.runs.scores import metric_value
from registry import papers
from registry.errors import CseError

ROW, STEP, MEASURE = "row", "step", "measures."
"""Values of a figure's `x` that are not a setting. The last one is a prefix."""
SECTIONS = ("data", "train", "evaluate")
"""Sections of a recipe whose settings need no component name in a label."""
NAMED = 2
LETTERS = 24
MARGIN = 0.12
"""Share of a range that stays empty at both ends."""
RATIO = 2.0
"""Ratio of two ranges' union to the wider one, above which each range gets its own panel."""
DECADES = 100.0
"""Ratio of the ends of a logarithmic axis from which only powers of ten are labeled."""
Range = tuple[float, float]


def study_figure(runs: StudyRuns) -> Figure | None:
    """Return the figure of a study, or None if it has nothing to show. Call it inside `figure_style`."""
    study, spec = runs.study, runs.study.figure
    if spec is not None and spec.x == DIFFERENCE:
        return difference_figure(runs, spec)
    if spec is None or not runs.current:
        return None
    if spec.x == STEP:
        curves = study_curves(runs, spec)
        ylabel = spec.ylabel or score_name(spec.y or study.score or "")
        return draw_curves(curves, spec.xlabel or STEP, ylabel, _heading(runs)) if curves else None
    points = study_points(runs, spec)
    if not any(point.values for point in points):
        return None
    score = spec.ylabel or " or ".join(dict.fromkeys(score_name(point.score) for point in points))
    paper = ""
    if study.answers is not None:
        reported, table = papers.load(study.answers[0]), study.answers[1]
        paper = f"{reported.short}, {reported.tables[table].title}" if table in reported.tables else reported.short
    draw = _draw_names if spec.x == ROW else _draw_sweep
    return draw(points, spec, score, _series(points, paper), _heading(runs))


def _heading(runs: StudyRuns) -> Heading:
    study, current, made = runs.study, runs.current, [cell for cell, _ in runs.cells]
    counts = sorted({len(of_cell) for of_cell in current.values()})
    seeds = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    seeds = "1 seed" if counts == [1] else f"{seeds}, mean ± standard deviation"
    names = list(dict.fromkeys(cell.recipe for cell in made if cell.hash in current))
    recipes = ", ".join(names) if len(names) <= NAMED else f"{len(names)} recipes"
    notes = []
    if len(current) < (whole := len({cell.hash for cell in made})):
        notes.append(f"{len(current)} of {whole} settings have finished runs")
    if study.answers is not None:
        paper = papers.load(study.answers[0])
        figure = paper.figures.get(study.answers[1])
        if figure is not None and figure.quoted:
            numbers = []
            for one in figure.quoted:
                ends = [f"{end:,g}" for end in (one.value, one.high) if end is not None]
                numbers.append(f"{one.what} {' to '.join(ends)}")
            notes.append(f"{paper.short}, Figure {figure.number}: {', '.join(numbers)}")
    return Heading(study.title, f"{recipes}; {seeds}", "; ".join(notes))


@dataclass(frozen=True)
class Numbers:
    """Measured or reported numbers of all points.

    `name` is the title of the panel or a label in the legend, `style` that of a single line, `span` the range of all
    means ± standard deviations.
    """

    name: str
    number: Callable[[Point], MeanStd | None]
    style: dict[str, Any]
    span: Range
    panel: int = 0


def _series(points: Sequence[Point], paper: str) -> list[Numbers]:
    """Return the measured and the reported numbers, in one panel if one axis shows both well, else in two."""
    reported = {"color": PAPER, "marker": "s", "linestyle": (0, (4, 2)), "markerfacecolor": "white"}
    measured = {"color": MEASURED, "marker": "o", "linestyle": "-"}
    found: list[Numbers] = []
    for name, number, style in (
        ("this study", attrgetter("measured"), measured),
        (paper, lambda point: None if point.reported is None else (point.reported, 0.0), reported),
    ):
        numbers = [each for point in points if (each := number(point))]
        if numbers:
            span = min(mean - std for mean, std in numbers), max(mean + std for mean, std in numbers)
            found.append(Numbers(name, number, style, span))
    placed = [point for point in points if point.x is not None] or points
    if len({point.line for point in placed}) == 1 and fit_together([one.span for one in found]):
        return found
    return [replace(one, panel=panel) for panel, one in enumerate(found)]


def fit_together(ranges: Sequence[Range]) -> bool:
    """Return whether one axis shows all ranges without flattening one of them."""
    widest = max(high - low for low, high in ranges)
    return max(high for _, high in ranges) - min(low for low, _ in ranges) <= RATIO * widest


def equal_spans(ranges: Sequence[Range]) -> list[Range]:
    """Return axis limits around each range. All have the same length, so slopes can be compared between panels."""
    half = (max(high - low for low, high in ranges) or 1.0) * (0.5 + MARGIN)
    return [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in ranges]


def _draw_sweep(
    points: Sequence[Point], spec: FigureSpec, score: str, series: Sequence[Numbers], heading: Heading
) -> Figure:
    """Draw the scores by a setting or a measure. A second panel is below the first."""
    panels = 1 + series[-1].panel
    figure = new_figure(heading, height=0.4 + (1.4 if panels > 1 else 1.8) * panels)
    every = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    placed = [(point.x, point) for point in points if point.x is not None]
    _draw_series(every, series, placed, "y", joined=not spec.x.startswith(MEASURE) or spec.lines is not None)
    for one in series:  # a horizontal line for each setting without a position, such as a removed component
        levels = [(point.label, number) for point in points if point.x is None and (number := one.number(point))]
        for place, (label, (mean, std)) in enumerate(levels):
            style = line_style(-1 - place) | {"marker": "none", "linewidth": 0.9, "zorder": 1}
            every[one.panel].axhline(mean, label=label, **style)
            every[one.panel].axhspan(mean - std, mean + std, color=style["color"], alpha=0.1, linewidth=0)
    add_legend(figure)
    axis = every[-1].xaxis
    axis.set_major_locator(MaxNLocator(6))
    if spec.log_x:
        every[-1].set_xscale("log")
        positions = [position for position, _ in placed]
        few = max(positions) < DECADES * min(positions)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    every[-1].set_xlabel(spec.xlabel or spec.x.removeprefix(MEASURE))
    figure.supylabel(score, fontsize=7.5) if panels > 1 else every[0].set_ylabel(score)
    return figure


def _draw_names(
    points: Sequence[Point], _: FigureSpec, score: str, series: Sequence[Numbers], heading: Heading
) -> Figure:
    """Draw one row for each setting. A second panel is to the right of the first."""
    panels = 1 + series[-1].panel
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
    every: Sequence[Axes],
    series: Sequence[Numbers],
    placed: Sequence[tuple[float, Point]],
    scores: str,
    *,
    joined: bool,
) -> None:
    """Draw each line of each series with error bars: on the axis `scores`, with positions on the other axis."""
    lines = list(dict.fromkeys(point.line for _, point in placed))
    for one, span in zip(series, equal_spans([one.span for one in series]), strict=True):
        axes = every[one.panel]
        for number, line in enumerate(lines):
            style = dict(one.style if len(lines) == 1 else line_style(number))
            if not joined:
                style["linestyle"] = "none"
            own = sorted((at, *found) for at, point in placed if point.line == line and (found := one.number(point)))
            if own:
                at, mean, std = zip(*own, strict=True)
                x, y = (mean, at) if scores == "x" else (at, mean)
                bars: dict[str, Any] = {f"{scores}err": std, "capsize": 2, "elinewidth": 0.8} if any(std) else {}
                label = one.name if len(every) < len(series) else line
                axes.errorbar(x, y, label=label or None, zorder=3, **bars, **style)
        (axes.xaxis if scores == "x" else axes.yaxis).set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.grid(visible=True)
        if len(every) > 1:
            axes.set_title(one.name, loc="left", parse_math=False)
            (axes.set_xlim if scores == "x" else axes.set_ylim)(span)


@dataclass(frozen=True)
class Point:
    """One setting: the reported number, and the score of each seed.

    A setting without a value, such as a removed component, has no `x`. `line` is the name of the line that connects
    the point with others.
    """

    x: float | None
    label: str
    line: str
    score: str
    values: tuple[float, ...]
    reported: float | None = None

    @property
    def measured(self) -> MeanStd | None:
        """Mean and standard deviation over the seeds, or None without runs."""
        return mean_std(self.values) if self.values else None


def study_points(runs: StudyRuns, spec: FigureSpec) -> list[Point]:
    """Return a point for each column of each cell, from the runs with its current settings."""
    study = runs.study.model_copy(update={"score": spec.y or runs.study.score})
    table, current, sideways = cells.paper_table(study), runs.current, _sideways(runs)
    found = []
    for cell, _ in runs.cells:
        results = current.get(cell.hash, [])
        numbers = cells.values(study, [cell], current)[cell.row]
        reported = {} if table is None else table.values(cell.row)
        for heading, (score, _) in cells.column_scores(study, cell, results).items():
            point = Point(
                x=_position(cell, spec, results),
                label=heading if sideways else cell.row,
                line=_line(cell, spec, "" if sideways else heading),
                score=score,
                values=tuple(filter(math.isfinite, numbers[heading])),
                reported=reported.get(heading),
            )
            if point.x is not None or not spec.x.startswith(MEASURE):
                found.append(point)
    several = len({point.line for point in found}) > 1
    return found if several else [replace(point, line="") for point in found]


def study_curves(runs: StudyRuns, spec: FigureSpec) -> list[Curve]:
    """Return the dev score by step of each cell that has one."""
    found, current, sideways = [], runs.current, _sideways(runs)
    for cell, _ in runs.cells:
        drawn = [run for run in current.get(cell.hash, ()) if run.curve]
        label = ", ".join(cell.columns) if sideways else cell.row
        found.append(curve_of(label, [run for run in drawn if spec.y in (None, run.metric_for_best_model)]))
    return [curve for curve in found if curve is not None]


def _sideways(runs: StudyRuns) -> bool:
    """Return whether the settings are the columns of a table, not its rows."""
    return len({cell.row for cell, _ in runs.cells}) == 1 and len(runs.cells) > 1


def _position(cell: cells.Cell, spec: FigureSpec, results: Sequence[Result]) -> float | None:
    if spec.x.startswith(MEASURE):
        measured = [run.measures.get(spec.x.removeprefix(MEASURE)) for run in results]
        known = [value for value in measured if value is not None]
        x = fmean(known) if known else None
    else:
        x = cell.resolved.setting(spec.x) if cell.resolved else None
    return float(x) if isinstance(x, int | float) and (x > 0 or not spec.log_x) else None


def _line(cell: cells.Cell, spec: FigureSpec, heading: str) -> str:
    if spec.lines is None or cell.resolved is None:
        return heading
    found = cell.resolved.setting(spec.lines)
    if found is None or isinstance(found, str):
        return found or ""
    names = spec.lines.split(".")
    component = names[-2:] if names[0] not in SECTIONS else names[-1:]
    return f"{' '.join(component).replace('_', ' ')} {found:g}"


DIFFERENCE = "difference"
_BETTER: dict[str, Any] = {"color": MEASURED, "marker": "o"}
_WORSE: dict[str, Any] = {"color": CHOSEN, "marker": "s"}
_STYLES: dict[str, dict[str, Any]] = {
    "better": _BETTER,
    "higher": _BETTER,
    NONE: {"color": UNTRAINED, "marker": "o", "markerfacecolor": "white", "label": "not significant"},
    "worse": _WORSE,
    "lower": _WORSE,
    BASELINE: {"color": BLACK, "marker": "D"},
    OVERLAP: {"color": BLACK, "marker": "x"},
}
"""Verdict → style, in the order of the legend. Markers differ in gray, too."""


def difference_figure(runs: StudyRuns, spec: FigureSpec) -> Figure | None:
    """Return the figure of a study whose `x` is "difference", or None if no rows can be compared."""
    study, score = runs.study, spec.y or runs.study.score
    try:
        document = compare_rows(runs, study.name, score)
    except CseError:
        return None
    score = score or document.comparisons[0].main.metric
    lines = summary_lines(document, score)
    counts = sorted({len(line.scores) for line in lines if line.verdict != OVERLAP})
    seeds = counted(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    together = f"{counted(document.corrected_for, 'interval')} with 95 % together"
    missing = len(runs.rows_without_runs())
    note = f"{missing} of {counted(len(runs.rows), 'row')} have no finished runs" if missing else ""
    heading = Heading(study.title, f"compared with {baseline_of(document)}; {seeds}; {together}", note)
    return draw_differences(lines, spec.xlabel or f"difference, {score_name(score)}", heading)


def draw_differences(lines: Sequence[Line], label: str, heading: Heading) -> Figure:
    """Draw one row for each line: the difference as a dot with its interval, in color if the interval excludes 0."""
    longest = LETTER * max(len(line.name) for line in lines)
    figure = new_figure(heading, COLUMN if longest < COLUMN / 3 else PAGE, 0.8 + 0.14 * len(lines))  # inches
    axes = figure.add_subplot()
    axes.axvline(0, color=BLACK, linewidth=0.6, zorder=1)
    for verdict, own in _STYLES.items():
        placed = []
        for place, line in enumerate(lines):
            over = None if line.tested is None else line.tested.over_seeds
            if line.verdict == verdict:  # an unbounded interval has no bar
                bar = 0.0 if over is None or over.high is None else over.high - over.difference
                placed.append((line.difference, place, bar))
        if placed:
            x, y, reach = zip(*placed, strict=True)
            style = {"linestyle": "none", "elinewidth": 0.9, "capsize": 1.5, "zorder": 3, "label": verdict, **own}
            axes.errorbar(x, y, xerr=reach, **style)
    label_axes(axes, label, "")
    axes.set_yticks(range(len(lines)), [line.name for line in lines], parse_math=False)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    add_legend(figure)
    return figure


MeanStd = tuple[float, float]
EQUAL = 0.005
"""Difference below which scores before training count as equal."""


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
    finite = [{step for step, score in run.curve.items() if math.isfinite(score)} for run in runs]
    steps = sorted(set.intersection(*finite)) if runs else []
    before = [metric_value(run.untrained, run.metric_for_best_model or "") for run in runs]
    scores = tuple(tuple(run.curve[step] for step in steps) for run in runs)
    return Curve(label, tuple(steps), scores, tuple(b for b in before if b is not None)) if steps else None


def draw_curves(curves: Sequence[Curve], xlabel: str, ylabel: str, heading: Heading) -> Figure:
    """Draw the mean over the seeds by step with a band of one standard deviation. A marker shows the best step."""
    figure = new_figure(heading, height=2.1 + 0.13 * len(curves))
    axes = figure.add_subplot()
    for place, curve in enumerate(curves):
        at_steps = [mean_std(scores) for scores in zip(*curve.scores, strict=True)]
        means = [mean for mean, _ in at_steps]
        style: dict[str, Any] = line_style(place) | {"markersize": 5.5, "markerfacecolor": "white"}
        best = means.index(max(means))
        label = f"{curve.label}: {curve.best}"
        axes.plot(curve.steps, means, label=label, zorder=3, markevery=[best], markeredgewidth=1.2, **style)
        if len(curve.scores) > 1:
            low, high = ([mean + sign * std for mean, std in at_steps] for sign in (-1, 1))
            axes.fill_between(curve.steps, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2)
    before = [score for curve in curves for score in curve.before]
    if before and max(before) - min(before) < EQUAL:
        axes.axhline(fmean(before), label=f"untrained: {fmean(before):.2f}", **GUIDE)
    label_steps(axes, xlabel, ylabel)
    add_legend(figure)
    return figure
