"""Figures of a finished run, from its result and the series of its evaluators."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.analysis.experiments import FinishedRuns, group
from cse_cli.analysis.tables import paper_table
from cse_cli.core.plotting import (
    BLACK,
    CHOSEN,
    COLORS,
    COLUMN,
    GUIDE,
    MARKERS,
    MEASURED,
    PAGE,
    PAPER,
    SMALL,
    UNTRAINED,
    Heading,
    add_legend,
    label_axes,
    label_steps,
    line_style,
    metric_name,
    new_figure,
    save_figures,
)
from cse_cli.core.results import STS_TASKS, Result, Series
from cse_cli.runs.scores import metric_value
from registry import papers
from registry.papers import AVERAGE

LABELS = {"measured": "this run", "untrained": "untrained"}
FILLS: dict[str, dict[str, Any]] = {
    "measured": {"facecolor": MEASURED, "edgecolor": MEASURED},
    "paper": {"facecolor": "white", "edgecolor": PAPER, "hatch": "/////"},
    "untrained": {"facecolor": "#dddddd", "edgecolor": UNTRAINED},
}
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
SCATTERS = 3
"""Maximum number of scatter plots of a run. Each takes a quarter of a second."""
BINS = 26
"""Number of bins: gold scores from 0 to 5 are often means of five ratings, so each fifth has its own bin."""
FEW = 40
"""Largest number of singular values that get a marker each."""
Figures = Iterator[tuple[str, Figure]]
Bars = Mapping[str, tuple[str, Sequence[float | None]]]
"""Role → label, and one value or None for each task."""
Steps = Sequence[tuple[int, float]]


def _heading(result: Result, title: str, *evaluators: str, note: str = "") -> Heading:
    names = [name for evaluator in evaluators for name in result.scored_on.get(evaluator, ())]
    data = names[0] if names else ", ".join(evaluators)  # dataset/split
    if len(names) > 1:
        splits = sorted({name.rpartition("/")[2] for name in names})
        data = f"{' and '.join(splits)} split{'s' if len(splits) > 1 else ''}"
    return Heading(f"{title}{data}", f"{result.title}, seed {result.seed}", note)


def _selecting(result: Result) -> str:
    """Return the evaluator that selected the state, or an empty string."""
    return (result.metric_for_best_model or "").rpartition(".")[0]


def draw_run(result: Result, series: Mapping[str, Series], directory: Path) -> list[Path]:
    """Write each figure for which the run has data, as SVG and as PNG, and return the files.

    `series` has the series of each evaluator.
    """
    return save_figures(run_figures(result, series), directory)


def run_figures(result: Result, series: Mapping[str, Series]) -> Figures:
    """Yield name and figure for everything for which the run has data. Iterate inside `figure_style`."""
    for kind, figures in (
        ("training_curve", _training_curve(result)),
        ("tasks_", _task_bars(result)),
        ("similarity_", _similarities(result, series)),
        ("singular_values_", _spectra(result, series)),
        ("alignment_uniformity_", _planes(result)),
    ):
        for name, figure in figures:
            yield kind + re.sub(r"[^\w.-]", "_", name), figure


def _training_curve(result: Result) -> Figures:
    """Yield the score by step. A diamond marks the selected step, a dashed line the score before training."""
    curve, selected, selecting = result.curve, result.selected_step, result.metric_for_best_model
    if not curve or selecting is None:
        return
    metric = metric_name(selecting.rpartition(".")[2])
    figure = new_figure(_heading(result, f"Training curve: {metric}, ", _selecting(result)))
    axes = figure.add_subplot()
    steps = sorted(curve)
    axes.plot(steps, [curve[step] for step in steps], "-o", color=MEASURED, zorder=2)
    if selected is not None and math.isfinite(curve.get(selected, math.nan)):
        label = f"selected: {curve[selected]:.2f}, step {selected}"
        point = ([selected], [curve[selected]])
        axes.plot(*point, "D", color=CHOSEN, label=label, zorder=3, markersize=6, mfc="none", markeredgewidth=1.3)
    untrained = metric_value(result.untrained, selecting)
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


def _task_bars(result: Result) -> Figures:
    """Yield the bars next to the paper's row that the run reproduces, else one chart for each shared metric."""
    paper = result.paper
    (experiment,) = group(FinishedRuns([result]))
    if paper is not None and experiment.latest.paper is not None:
        shown = paper_table(paper.key, paper.table, [experiment])
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
            heading = _heading(result, f"Tasks: {table.metric}, ", *evaluators)
            yield "paper", draw_bars([column.name for column in columns], rows, table.metric, heading)
            return
    scored = {name: next(iter(of)) for name, of in result.scores.items() if of and name != _selecting(result)}
    for metric in dict.fromkeys(scored.values()):
        evaluators = [name for name, of in scored.items() if of == metric]
        if len(evaluators) > 1:
            names, rows = [*evaluators, *([AVERAGE] if set(STS_TASKS) <= set(evaluators) else [])], {}
            for role, state in (("untrained", result.untrained), ("measured", result.scores)):
                values = [metric_value(state, name if name == AVERAGE else f"{name}.{metric}") for name in names]
                if any(value is not None for value in values):
                    rows[role] = LABELS[role], values
            heading = _heading(result, f"Tasks: {metric_name(metric)}, ", *evaluators)
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


def _similarities(result: Result, series: Mapping[str, Series]) -> Figures:
    """Yield at most `SCATTERS` scatter plots.

    The order is: evaluators whose metric no other evaluator has, the selecting evaluator, those on the same data set,
    and all others as in the recipe.
    """
    metrics = [next(iter(scores), "") for scores in result.scores.values()]
    datasets = {name.rpartition("/")[0] for name in result.scored_on.get(_selecting(result), ())}

    def rank(evaluator: str) -> tuple[bool, bool, bool]:
        shared = metrics.count(next(iter(result.scores.get(evaluator, ())), "")) > 1
        same = any(name.rpartition("/")[0] in datasets for name in result.scored_on.get(evaluator, ()))
        return shared, evaluator != _selecting(result), not same

    paired = [name for name, of in series.items() if len(of.get("gold", ())) and len(of.get("cosine", ()))]
    for evaluator in sorted(paired, key=rank)[:SCATTERS]:
        gold, cosine = series[evaluator]["gold"], series[evaluator]["cosine"]
        scores, correlations = result.scores.get(evaluator, {}), []
        for name in ("spearman", "pearson"):
            if name in scores:
                low, high = (scores.get(f"{name}_{end}", scores[name]) for end in ("low", "high"))
                interval = f" ({low:.2f} to {high:.2f})" if low < high else ""
                correlations.append(f"{name.capitalize()} {scores[name]:.2f}{interval}")
        note = ", ".join([*correlations, f"{len(gold):,}\N{NO-BREAK SPACE}pairs"])
        heading = _heading(result, "Gold score and cosine, ", evaluator, note=note)
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


def _spectra(result: Result, series: Mapping[str, Series]) -> Figures:
    """Yield the singular values of the embeddings, divided by the largest, on a logarithmic scale."""
    for evaluator, arrays in series.items():
        values = arrays.get("singular_values", ())
        if max(values, default=0) > 0:
            rank = result.scores.get(evaluator, {}).get("effective_rank")
            note = "" if rank is None else f"effective rank {rank:.1f} of {len(values)}"
            figure = new_figure(_heading(result, "Singular values of the embeddings, ", evaluator, note=note))
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


def _planes(result: Result) -> Figures:
    """Yield the run and its untrained encoder among the papers' points, with arrows to points derived from others."""
    reported: dict[str, tuple[float, float]] = {}  # uniformity and alignment
    sources: list[str] = []
    for paper in map(papers.load, papers.names()):
        for table in paper.tables.values():
            if set(REPORTED) <= {column.name for column in table.columns}:
                sources.append(f"{paper.short}, Table {table.number}")
                for name in table.rows:
                    uniformity, alignment = (table.values(name)[heading] for heading in REPORTED)
                    if alignment is not None and uniformity is not None:
                        reported[name] = (uniformity, alignment)
    for evaluator, scores in result.scores.items():
        if not {ALIGNMENT, UNIFORMITY} <= set(scores):
            continue
        states = {"untrained": result.untrained.get(evaluator), "measured": scores}
        own = {role: (of[UNIFORMITY], of[ALIGNMENT]) for role, of in states.items() if of}
        note = f"points of papers: {'; '.join(sources)}"
        heading = _heading(result, "Alignment and uniformity, ", evaluator, note=note)
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
