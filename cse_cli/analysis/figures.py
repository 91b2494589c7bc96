"""Figures of a finished run, from its result and the series of its evaluators, and the figure of a study."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from cse_cli.analysis.compare import compare_rows
from cse_cli.analysis.compare_view import BASELINE, NONE, OVERLAP, Line, baseline_of, summary_lines
from cse_cli.analysis.experiments import group
from cse_cli.analysis.origins import RecipeStatus
from cse_cli.analysis.studies import StudyRuns
from cse_cli.analysis.tables import paper_table
from cse_cli.core.formatting import counted
from cse_cli.core.plotting import (
    BLACK,
    CHOSEN,
    COLORS,
    COLUMN,
    GUIDE,
    LETTER,
    MARKERS,
    MEASURED,
    PAGE,
    PAPER,
    SMALL,
    STEPS,
    UNTRAINED,
    Heading,
    add_legend,
    label_axes,
    label_steps,
    line_style,
    metric_name,
    new_figure,
    save_figures,
    score_name,
)
from cse_cli.core.results import STS_TASKS, Result, Series
from cse_cli.recipe import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import FigureSpec
from cse_cli.runs.scores import metric_value
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE

LABELS = {"measured": "this run", "untrained": "untrained"}
"""Role → its label in a legend."""
FILLS: dict[str, dict[str, Any]] = {
    "measured": {"facecolor": MEASURED, "edgecolor": MEASURED},
    "paper": {"facecolor": "white", "edgecolor": PAPER, "hatch": "/////"},
    "untrained": {"facecolor": "#dddddd", "edgecolor": UNTRAINED},
}
"""Role → style of its bars, distinct in gray as well."""
POINTS: dict[str, dict[str, Any]] = {
    "untrained": {"s": 26, "facecolor": "white", "edgecolor": UNTRAINED, "linewidths": 1},
    "measured": {"s": 75, "color": MEASURED, "marker": "*"},
}
"""Role → style of its point in the plane of alignment and uniformity."""
WIDE = 5
"""Number of tasks above which a figure covers both columns of a page."""
ALIGNMENT, UNIFORMITY = "alignment", "uniformity"
"""Metrics of the evaluators that get a plane."""
REPORTED = ("UNIF", "ALGN")
"""Columns of a paper's table with uniformity and alignment."""
SCATTERS = 3
"""Maximum number of scatter plots of a run. Each takes a quarter of a second."""
BINS = 26
"""Number of bins: gold scores from 0 to 5 are often means of five ratings, so each fifth has its own bin."""
FEW = 40
"""Largest number of singular values that get a marker each."""

Figures = Iterator[tuple[str, Figure]]
"""Names and figures."""
Bars = Mapping[str, tuple[str, Sequence[float | None]]]
"""Role → label, and one value or None for each task."""
Steps = Sequence[tuple[int, float]]
"""Step and value, ordered by step."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and the numbers of its figures.

    Args:
        result: Scores of the run.
        series: Series of its evaluators.
        data: Evaluator → names "dataset/split" of its data, for the titles.
        status: Relation of the run to its recipe's file. Default: by the file. Only a current run is compared with a
            paper's row.
    """

    result: Result
    series: Mapping[str, Series] = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    status: RecipeStatus | None = None

    @property
    def selecting(self) -> str:
        """Name of the evaluator that selected the checkpoint, or an empty string."""
        return (self.result.metric_for_best_model or "").rpartition(".")[0]

    def heading(self, title: str, *evaluators: str, note: str = "") -> Heading:
        """Return a heading with title, data, method and seed."""
        names = [name for evaluator in evaluators for name in self.data.get(evaluator, ())]
        data = names[0] if names else ", ".join(evaluators)  # dataset/split
        if len(names) > 1:
            splits = sorted({name.rpartition("/")[2] for name in names})
            data = f"{' and '.join(splits)} split{'s' if len(splits) > 1 else ''}"
        return Heading(f"{title}{data}", f"{self.result.title}, seed {self.result.seed}", note)

    def with_series(self, *names: str) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → series with these names. Evaluators without one of them are omitted."""
        found = {evaluator: tuple(of.get(name, ()) for name in names) for evaluator, of in self.series.items()}
        return {evaluator: series for evaluator, series in found.items() if all(len(one) for one in series)}


def draw_run(
    result: Result, series: Mapping[str, Series], directory: Path, data: Mapping[str, Sequence[str]] | None = None
) -> list[Path]:
    """Write each figure for which the run has data, as SVG and as PNG, and return the files."""
    return save_figures(run_figures(FinishedRun(result, series, data or {})), directory)


def run_figures(run: FinishedRun) -> Figures:
    """Yield name and figure for everything for which the run has data. Iterate inside `figure_style`."""
    for kind, figures in (
        ("training_curve", _training_curve(run)),
        ("tasks_", _task_bars(run)),
        ("similarity_", _similarities(run)),
        ("singular_values_", _spectra(run)),
        ("alignment_uniformity_", _planes(run)),
    ):
        for name, figure in figures:
            yield kind + re.sub(r"[^\w.-]", "_", name), figure


def _training_curve(run: FinishedRun) -> Figures:
    """Yield the score by step. A diamond marks the selected step, a dashed line the score before training."""
    curve, selected, selecting = run.result.curve, run.result.selected_step, run.result.metric_for_best_model
    if not curve or selecting is None:
        return
    metric = metric_name(selecting.rpartition(".")[2])
    figure = new_figure(run.heading(f"Training curve: {metric}, ", run.selecting))
    axes = figure.add_subplot()
    steps = sorted(curve)
    axes.plot(steps, [curve[step] for step in steps], "-o", color=MEASURED, zorder=2)
    if selected is not None and math.isfinite(curve.get(selected, math.nan)):
        label = f"selected: {curve[selected]:.2f}, step {selected}"
        point = ([selected], [curve[selected]])
        axes.plot(*point, "D", color=CHOSEN, label=label, zorder=3, markersize=6, mfc="none", markeredgewidth=1.3)
    untrained = metric_value(run.result.untrained, selecting)
    if untrained is not None and math.isfinite(untrained):
        axes.axhline(untrained, label=f"untrained: {untrained:.2f}", **GUIDE)
    label_steps(axes, "step", metric)
    add_legend(figure)
    yield "", figure


def loss_curves(whole: Steps, parts: Mapping[str, Steps], heading: Heading) -> Figure:
    """Draw the minimized loss by step, with its parts before weighting. A part that equals the whole is omitted."""
    figure = new_figure(heading, height=2.0 + 0.13 * len(parts))
    axes = figure.add_subplot()
    shown = {name: points for name, points in parts.items() if list(points) != list(whole)}
    for place, (name, points) in enumerate(shown.items()):
        axes.plot(*_finite(points), label=name, linewidth=0.9, **{**line_style(place), "marker": "none"})
    axes.plot(*_finite(whole), color=BLACK, label="minimized" if shown else "_", zorder=3)
    label_steps(axes, "step", "loss")
    if not any(value <= 0 for points in (whole, *shown.values()) for _, value in points):  # losses differ by factors
        axes.set_yscale("log")
    add_legend(figure)
    return figure


def _finite(points: Steps) -> tuple[list[int], list[float]]:
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    return [step for step, _ in finite], [value for _, value in finite]


def _task_bars(run: FinishedRun) -> Figures:
    """Yield the bars next to the paper's row that the run reproduces, else one chart for each shared metric."""
    paper = run.result.paper
    (experiment,) = group([run.result], status=run.status)
    if paper is not None and experiment.latest.paper is not None:
        shown, _ = paper_table(paper.key, paper.table, [experiment])
        scores = {row.source: row.scores for row in shown.rows if paper.row in (row.reproduces, row.name)}
        if "paper" in scores and scores.get("measured"):
            table = papers.load(paper.key).tables[paper.table]
            columns = [column for column in table.columns if column.name in scores["measured"]]
            labels = {"paper": f"{papers.load(paper.key).short}: {paper.row}", **LABELS}
            rows: dict[str, tuple[str, list[float | None]]] = {}
            for role in ("paper", "measured"):
                found = [scores[role].get(column.name) for column in columns]
                rows[role] = labels[role], [None if score is None else score.mean for score in found]
            evaluators = [column.evaluator for column in columns if column.evaluator not in (None, AVERAGE)]
            heading = run.heading(f"Tasks: {table.metric}, ", *evaluators)
            yield "paper", draw_bars([column.name for column in columns], rows, table.metric, heading)
            return
    scored = {name: next(iter(of)) for name, of in run.result.scores.items() if of and name != run.selecting}
    for metric in dict.fromkeys(scored.values()):
        evaluators = [name for name, of in scored.items() if of == metric]
        if len(evaluators) > 1:
            names, rows = [*evaluators, *([AVERAGE] if set(STS_TASKS) <= set(evaluators) else [])], {}
            for role, state in (("untrained", run.result.untrained), ("measured", run.result.scores)):
                values = [metric_value(state, name if name == AVERAGE else f"{name}.{metric}") for name in names]
                if any(value is not None for value in values):
                    rows[role] = LABELS[role], values
            heading = run.heading(f"Tasks: {metric_name(metric)}, ", *evaluators)
            yield metric, draw_bars(names, rows, metric_name(metric), heading)


def draw_bars(tasks: Sequence[str], rows: Bars, metric: str, heading: Heading) -> Figure:
    """Draw grouped bars, each with its number."""
    figure = new_figure(heading, PAGE if len(tasks) > WIDE else COLUMN, 2.1)
    axes = figure.add_subplot()
    thickness = 0.8 / len(rows)
    for place, (role, (name, values)) in enumerate(rows.items()):
        shift = (place - (len(rows) - 1) / 2) * thickness
        known = {task + shift: value for task, value in enumerate(values) if value is not None}
        bars = axes.bar(
            list(known), list(known.values()), width=0.92 * thickness, label=name, linewidth=0.7, **FILLS[role]
        )
        # Vertical numbers do not overlap on narrow bars.
        axes.bar_label(bars, fmt="{:.2f}", rotation=90, padding=2, fontsize=SMALL)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(metric)
    axes.set_xlim(-0.6, len(tasks) - 0.4)
    axes.margins(y=0.28)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.tick_params(axis="x", length=0)
    add_legend(figure)
    return figure


def _similarities(run: FinishedRun) -> Figures:
    """Yield at most `SCATTERS` scatter plots.

    The order is: evaluators whose metric no other evaluator has, the selecting evaluator, those on the same data set,
    and all others as in the recipe.
    """
    metrics = {evaluator: next(iter(scores), "") for evaluator, scores in run.result.scores.items()}
    datasets = {name.rpartition("/")[0] for name in run.data.get(run.selecting, ())}

    def rank(evaluator: str) -> tuple[bool, bool, bool]:
        shared = list(metrics.values()).count(metrics.get(evaluator, "")) > 1
        same = any(name.rpartition("/")[0] in datasets for name in run.data.get(evaluator, ()))
        return shared, evaluator != run.selecting, not same

    found = run.with_series("gold", "cosine")
    for evaluator in sorted(found, key=rank)[:SCATTERS]:
        gold, cosine = found[evaluator]
        scores, correlations = run.result.scores.get(evaluator, {}), []
        for name in ("spearman", "pearson"):
            if name in scores:
                low, high = (scores.get(f"{name}_{end}", scores[name]) for end in ("low", "high"))
                interval = f" ({low:.2f} to {high:.2f})" if low < high else ""
                correlations.append(f"{name.capitalize()} {scores[name]:.2f}{interval}")
        note = ", ".join([*correlations, f"{len(gold):,}\N{NO-BREAK SPACE}pairs"])
        heading = run.heading("Gold score and cosine, ", evaluator, note=note)
        yield evaluator, similarity_scatter(gold, cosine, heading)


def similarity_scatter(gold: Sequence[float], cosine: Sequence[float], heading: Heading) -> Figure:
    """Draw one point for each sentence pair, with histograms of both scores in the margins."""
    figure = new_figure(heading, COLUMN, 2.8)
    grid = figure.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    points = figure.add_subplot(grid[1, 0])
    top = figure.add_subplot(grid[0, 0], sharex=points)
    right = figure.add_subplot(grid[1, 1], sharey=points)
    # As vector paths, thousands of points would need megabytes.
    opacity = min(0.6, max(0.08, 300 / len(gold)))
    points.scatter(gold, cosine, s=5, color=MEASURED, alpha=opacity, linewidths=0, rasterized=True)
    top.hist(gold, _centered_bins(gold), color=MEASURED, alpha=0.7)
    right.hist(cosine, _centered_bins(cosine), color=MEASURED, alpha=0.7, orientation="horizontal")
    for axes, side in ((top, "left"), (right, "bottom")):
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.spines[side].set_visible(False)
    top.set_yticks([])
    right.set_xticks([])
    label_axes(points, "gold score", "cosine")
    return figure


def _centered_bins(values: Sequence[float]) -> list[float]:
    """Return the edges of bins. The centers of the outermost bins are the smallest and the largest value."""
    low, high = min(values), max(values)
    width = (high - low) / (BINS - 1) or 1.0
    return [low + (place - 0.5) * width for place in range(BINS + 1)]


def _spectra(run: FinishedRun) -> Figures:
    """Yield the singular values of the embeddings, divided by the largest, on a logarithmic scale."""
    for evaluator, (values,) in run.with_series("singular_values").items():
        if max(values) > 0:
            rank = run.result.scores.get(evaluator, {}).get("effective_rank")
            note = "" if rank is None else f"effective rank {rank:.1f} of {len(values)}"
            figure = new_figure(run.heading("Singular values of the embeddings, ", evaluator, note=note))
            axes = figure.add_subplot()
            ordered = sorted((value for value in values if value > 0), reverse=True)
            shares = [value / ordered[0] for value in ordered]
            axes.plot(range(1, len(shares) + 1), shares, color=MEASURED, marker="o" if len(ordered) <= FEW else "none")
            zeros = len(values) - len(ordered)
            label_axes(axes, f"index (zero: {zeros} more)" if zeros else "index", "singular value / largest")
            axes.set_yscale("log")
            axes.set_xlim(0, len(values) + 1)
            axes.margins(y=0.1)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            yield evaluator, figure


UniformityAlignment = tuple[float, float]
"""Uniformity and alignment. Lower is better for both."""


def _planes(run: FinishedRun) -> Figures:
    """Yield the run and its untrained encoder among the papers' points, with arrows to points derived from others."""
    reported: dict[str, UniformityAlignment] = {}
    sources: list[str] = []
    for paper in map(papers.load, papers.names()):
        for table in paper.tables.values():
            if set(REPORTED) <= {column.name for column in table.columns}:
                sources.append(f"{paper.short}, Table {table.number}")
                for name in table.rows:
                    uniformity, alignment = (table.values(name)[heading] for heading in REPORTED)
                    if alignment is not None and uniformity is not None:
                        reported[name] = (uniformity, alignment)
    for evaluator, scores in run.result.scores.items():
        if not {ALIGNMENT, UNIFORMITY} <= set(scores):
            continue
        states = {"untrained": run.result.untrained.get(evaluator), "measured": scores}
        own = {role: (of[UNIFORMITY], of[ALIGNMENT]) for role, of in states.items() if of}
        note = f"points of papers: {'; '.join(sources)}"
        heading = run.heading("Alignment and uniformity, ", evaluator, note=note)
        figure = new_figure(heading, COLUMN, 2.4 + 0.13 * len(reported))
        axes = figure.add_subplot()
        for place, (name, point) in enumerate(reported.items()):
            color = COLORS[1 + place % (len(COLORS) - 1)]
            axes.scatter(*point, s=20, color=color, marker=MARKERS[place % len(MARKERS)], label=name, zorder=3)
        for role, point in own.items():
            axes.scatter(*point, label=LABELS[role], zorder=3, **POINTS[role])
        derived = [(one, other) for one in reported for other in reported if other.startswith(f"{one} + ")]
        arrows = [(reported[one], reported[other]) for one, other in derived]
        if "untrained" in own:
            arrows.append((own["untrained"], own["measured"]))
        for start, end in arrows:
            arrow = {"arrowstyle": "->", "color": "#aaaaaa", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 5}
            axes.annotate("", end, start, arrowprops=arrow, zorder=2)
        axes.margins(0.12, 0.12)
        label_axes(axes, "uniformity  (← better)", "alignment  (← better)")
        add_legend(figure)
        yield evaluator, figure


ROW, STEP, MEASURE = "row", "step", "measures."
"""Values of a figure's `x` that are not a setting. The last one is a prefix."""
SECTIONS = ("data", "train", "evaluate")
"""Sections of a recipe whose settings need no component name in a label."""

NAMED = 2
"""Maximum number of recipe names in a heading."""
LETTERS = 24
"""Width of a name in letters, after which it is wrapped."""
MARGIN = 0.12
"""Share of a range that stays empty at both ends."""
RATIO = 2.0
"""Ratio of two ranges' union to the wider one, above which each range gets its own panel."""
DECADES = 100.0
"""Ratio of the ends of a logarithmic axis from which only powers of ten are labeled."""

Range = tuple[float, float]


def study_figure(runs: StudyRuns) -> Figure | None:
    """Return the figure of a study, or None if it has nothing to show. Call it inside `figure_style`."""
    if runs.study.figure is not None and runs.study.figure.x == DIFFERENCE:
        return difference_figure(runs)
    if runs.study.figure is None or not runs.current:
        return None
    spec, found = runs.study.figure, StudyPoints(runs)
    if spec.x == STEP:
        curves = found.curves()
        ylabel = spec.ylabel or score_name(spec.y or runs.study.score or "")
        return draw_curves(curves, spec.xlabel or STEP, ylabel, _heading(found)) if curves else None
    points = found.points()
    if not any(point.values for point in points):
        return None
    score = spec.ylabel or " or ".join(dict.fromkeys(score_name(score) for score in found.scores() if score))
    draw = _draw_names if spec.x == ROW else _draw_sweep
    paper = ""
    if found.study.answers is not None:
        reported, table = papers.load(found.study.answers[0]), found.study.answers[1]
        paper = f"{reported.short}, {reported.tables[table].title}" if table in reported.tables else reported.short
    return draw(points, spec, score, _series(points, paper), _heading(found))


def _heading(found: StudyPoints) -> Heading:
    """Return the title, the recipes, the number of seeds, the missing cells, and numbers from the paper's text."""
    counts = sorted({len(runs) for runs in found.current.values()})
    seeds = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    seeds = "1 seed" if counts == [1] else f"{seeds}, mean ± standard deviation"
    names = list(dict.fromkeys(cell.recipe for cell in found.cells if cell.hash in found.current))
    recipes = ", ".join(names) if len(names) <= NAMED else f"{len(names)} recipes"
    notes = []
    if len(found.current) < (whole := len({cell.hash for cell in found.cells})):
        notes.append(f"{len(found.current)} of {whole} settings have finished runs")
    if found.study.answers is not None:
        paper = papers.load(found.study.answers[0])
        figure = paper.figures.get(found.study.answers[1])
        if figure is not None and figure.quoted:
            ends = [[end for end in (one.value, one.high) if end is not None] for one in figure.quoted]
            ranges = [" to ".join(f"{end:,g}" for end in of) for of in ends]
            numbers = [f"{one.what} {text}" for one, text in zip(figure.quoted, ranges, strict=True)]
            notes.append(f"{paper.short}, Figure {figure.number}: {', '.join(numbers)}")
    return Heading(found.study.title, f"{recipes}; {seeds}", "; ".join(notes))


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
    kinds = (("this study", attrgetter("measured"), measured), (paper, attrgetter("in_paper"), reported))
    found: list[Numbers] = []
    for name, number, style in kinds:
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


class StudyPoints:
    """Points and curves of a study's figure, from the runs with the current settings of its cells."""

    def __init__(self, runs: StudyRuns) -> None:
        self.study = runs.study
        self.figure = runs.study.figure or FigureSpec(x=ROW)
        self.cells = [cell for cell, _ in runs.cells]
        self.table = cells.paper_table(runs.study)
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
            runs = [run for run in self.current.get(cell.hash, ()) if run.curve]
            runs = [run for run in runs if self.figure.y in (None, run.metric_for_best_model)]
            found.append(curve_of(self._label(cell, cell.columns), runs))
        return [curve for curve in found if curve is not None]

    def scores(self) -> list[str]:
        """Return the different scores of the figure, as "evaluator.metric" or "avg"."""
        return list(dict.fromkeys(self.score(heading) for cell in self.cells for heading in self._headings(cell)))

    def score(self, heading: str) -> str:
        """Return "evaluator.metric" or "avg" of a reported column. Empty for differences, or if it is unknown."""
        columns = self.table.columns if self.table else ()
        column = next((column for column in columns if column.name == heading), None)
        if column is not None and column.minus is not None:
            return ""
        if own := self.figure.y or self.study.score_of(heading):
            return own
        if self.table is None or column is None or not column.evaluator:
            return ""
        return AVERAGE if column.evaluator == AVERAGE else f"{column.evaluator}.{self.table.score_of(column)}"

    def _points(self, cell: cells.Cell) -> Iterator[Point]:
        recipe = load(cell.recipe, cell.overrides, cell.unset).recipe
        runs = self.current.get(cell.hash, [])
        for heading in self._headings(cell):
            values = [metric_value(run.scores, self.score(heading)) for run in runs]
            yield Point(
                x=self._x(recipe, runs),
                label=self._label(cell, (heading,) if heading else ()),
                line=self._line(recipe, heading),
                values=tuple(value for value in values if value is not None and math.isfinite(value)),
                reported=self.table.values(cell.row)[heading] if self.table and heading else None,
            )

    def _headings(self, cell: cells.Cell) -> tuple[str, ...]:
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
            x = recipe.setting(self.figure.x)
        return float(x) if isinstance(x, int | float) and (x > 0 or not self.figure.log_x) else None

    def _line(self, recipe: Recipe, heading: str) -> str:
        if self.figure.lines is None:
            return "" if self._sideways else heading
        found = recipe.setting(self.figure.lines)
        if found is None or isinstance(found, str):
            return found or ""
        names = self.figure.lines.split(".")
        component = names[-2:] if names[0] not in SECTIONS else names[-1:]
        return f"{' '.join(component).replace('_', ' ')} {found:g}"

    def _label(self, cell: cells.Cell, headings: Sequence[str]) -> str:
        return ", ".join(headings) if self._sideways and headings else cell.row


DIFFERENCE = "difference"
"""Value of a figure's `x`."""
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


def difference_figure(runs: StudyRuns) -> Figure | None:
    """Return the figure of a study whose `x` is "difference", or None if no rows can be compared."""
    study, spec = runs.study, runs.study.figure or FigureSpec(x=DIFFERENCE)
    score = spec.y or study.score
    try:
        document = compare_rows(runs, study.name, score)
    except CseError:
        return None
    score = score or document.comparisons[0].main.metric
    lines = summary_lines(document, score)
    counts = sorted({len(line.scores) for line in lines if line.baseline is None})
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
