"""Figures of a run: tasks, training curve, losses, sentence pairs, singular values, alignment and uniformity.

Each function draws one figure from numbers. Call them inside `figure_style`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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
    new_figure,
)

FILLS: dict[str, dict[str, Any]] = {
    "measured": {"facecolor": MEASURED, "edgecolor": MEASURED},
    "paper": {"facecolor": "white", "edgecolor": PAPER, "hatch": "/////"},
    "untrained": {"facecolor": "#dddddd", "edgecolor": UNTRAINED},
}
"""Role → style of its bars, distinct in gray as well."""
WIDE = 5
"""Number of tasks above which a figure covers both columns of a page."""


def task_bars(
    tasks: Sequence[str], rows: Mapping[str, tuple[str, Sequence[float | None]]], metric: str, heading: Heading
) -> Figure:
    """Draw grouped bars, each with its number.

    Args:
        tasks: Name of each group.
        rows: Role ("measured", "paper" or "untrained") → label, and one value or None for each task.
        metric: Name of the score, with its unit.
        heading: Heading of the figure.
    """
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


def training_curve(
    curve: Mapping[int, float], selected: int | None, untrained: float | None, metric: str, heading: Heading
) -> Figure:
    """Draw the score by step. A diamond marks the selected step, a dashed line the score before training.

    Args:
        curve: Step → score.
        selected: Step of the selected checkpoint.
        untrained: Score before the first step, or None.
        metric: Name of the score, with its unit.
        heading: Heading of the figure.
    """
    figure = new_figure(heading)
    axes = figure.add_subplot()
    steps = sorted(curve)
    axes.plot(steps, [curve[step] for step in steps], "-o", color=MEASURED, zorder=2)
    if selected is not None and math.isfinite(curve.get(selected, math.nan)):
        label = f"selected: {curve[selected]:.2f}, step {selected}"
        point = ([selected], [curve[selected]])
        axes.plot(*point, "D", color=CHOSEN, label=label, zorder=3, markersize=6, mfc="none", markeredgewidth=1.3)
    if untrained is not None and math.isfinite(untrained):
        axes.axhline(untrained, label=f"untrained: {untrained:.2f}", **GUIDE)
    label_steps(axes, "step", metric)
    add_legend(figure)
    return figure


Points = Sequence[tuple[int, float]]
"""Step and value, ordered by step."""


def loss_curves(whole: Points, parts: Mapping[str, Points], heading: Heading) -> Figure:
    """Draw the loss by step, with its parts.

    Args:
        whole: Loss that was minimized.
        parts: Name → loss before weighting. A part that equals `whole` is omitted.
        heading: Heading of the figure.
    """
    figure = new_figure(heading, height=2.0 + 0.13 * len(parts))
    axes = figure.add_subplot()
    shown = {name: points for name, points in parts.items() if list(points) != list(whole)}
    for place, (name, points) in enumerate(shown.items()):
        axes.plot(*_finite(points), label=name, linewidth=0.9, **{**line_style(place), "marker": "none"})
    axes.plot(*_finite(whole), color=BLACK, label="minimized" if shown else "_", zorder=3)
    label_steps(axes, "step", "loss")
    add_legend(figure)
    return figure


def _finite(points: Points) -> tuple[list[int], list[float]]:
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    return [step for step, _ in finite], [value for _, value in finite]


BINS = 26
"""Number of bins: gold scores from 0 to 5 are often means of five ratings, so each fifth has its own bin."""


def similarity_scatter(
    gold: Sequence[float], cosine: Sequence[float], bands: tuple[Sequence[float], Sequence[float]], heading: Heading
) -> Figure:
    """Draw one point for each sentence pair, with histograms of both scores in the margins.

    Args:
        gold: Gold score of each pair.
        cosine: Cosine of each pair.
        bands: Gold score and mean cosine of bands of pairs, connected by a line. May be empty.
        heading: Heading of the figure.
    """
    figure = new_figure(heading, COLUMN, 2.8)
    grid = figure.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    points = figure.add_subplot(grid[1, 0])
    top = figure.add_subplot(grid[0, 0], sharex=points)
    right = figure.add_subplot(grid[1, 1], sharey=points)
    # As vector paths, thousands of points would need megabytes.
    opacity = min(0.6, max(0.08, 300 / len(gold)))
    points.scatter(gold, cosine, s=5, color=MEASURED, alpha=opacity, linewidths=0, rasterized=True)
    if len(bands[0]):
        points.plot(*bands, "-s", color=BLACK, markerfacecolor="white", label="mean of a band")
        add_legend(figure)
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


FEW = 40
"""Largest number of values that get a marker each."""


def singular_value_spectrum(values: Sequence[float], heading: Heading) -> Figure:
    """Draw the singular values of the embeddings, divided by the largest, on a logarithmic scale.

    Args:
        values: Singular value of each dimension. The axis label states the number of zeros.
        heading: Heading of the figure.
    """
    ordered = sorted((value for value in values if value > 0), reverse=True)
    figure = new_figure(heading)
    axes = figure.add_subplot()
    shares = [value / ordered[0] for value in ordered]
    axes.plot(range(1, len(shares) + 1), shares, color=MEASURED, marker="o" if len(ordered) <= FEW else "none")
    zeros = len(values) - len(ordered)
    label_axes(axes, f"index (zero: {zeros} more)" if zeros else "index", "singular value / largest")
    axes.set_yscale("log")
    axes.set_xlim(0, len(values) + 1)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


UniformityAlignment = tuple[float, float]
"""Uniformity and alignment. Lower is better for both."""


@dataclass(frozen=True)
class PlanePoints:
    """Points of the plane of alignment and uniformity.

    Args:
        named: Role ("measured", "untrained" or "paper") → name → point.
        links: Pairs of names connected by an arrow. The second point is derived from the first.
    """

    named: Mapping[str, Mapping[str, UniformityAlignment]]
    links: Sequence[tuple[str, str]] = ()


def alignment_uniformity_plane(points: PlanePoints, heading: Heading) -> Figure:
    """Draw every point with its own marker. The legend contains the names."""
    reported = points.named.get("paper", {})
    figure = new_figure(heading, COLUMN, 2.4 + 0.13 * len(reported))
    axes = figure.add_subplot()
    for place, (name, point) in enumerate(reported.items()):
        color = COLORS[1 + place % (len(COLORS) - 1)]
        axes.scatter(*point, s=20, color=color, marker=MARKERS[place % len(MARKERS)], label=name, zorder=3)
    styles: dict[str, dict[str, Any]] = {
        "untrained": {"s": 26, "facecolor": "white", "edgecolor": UNTRAINED, "linewidths": 1},
        "measured": {"s": 75, "color": MEASURED, "marker": "*"},
    }
    for role, style in styles.items():
        for name, point in points.named.get(role, {}).items():
            axes.scatter(*point, label=name, zorder=3, **style)
    places = {name: point for of_role in points.named.values() for name, point in of_role.items()}
    for start, end in points.links:
        arrow = {"arrowstyle": "->", "color": "#aaaaaa", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 5}
        axes.annotate("", places[end], places[start], arrowprops=arrow, zorder=2)
    axes.margins(0.12, 0.12)
    label_axes(axes, "uniformity  (← better)", "alignment  (← better)")
    add_legend(figure)
    return figure
