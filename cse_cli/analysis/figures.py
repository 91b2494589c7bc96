"""The scores of several tasks beside those of something else.

The dev score while training went on.

What people and the model say of each sentence pair.

How many directions the embeddings use.

Alignment against uniformity: where a run stands among the papers' printed points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from cse_cli.core.plotting import BLACK, CHOSEN, COLUMN, OURS, PAGE, PAPER, SMALL, UNTRAINED, Heading, blank

FILLS: dict[str, dict[str, Any]] = {
    "ours": {"facecolor": OURS, "edgecolor": OURS},
    "paper": {"facecolor": "white", "edgecolor": PAPER, "hatch": "/////"},
    "untrained": {"facecolor": "#dddddd", "edgecolor": UNTRAINED},
}
"""Role of a row → how its bars are filled; told apart in grey as well."""
WIDE = 5
"""Tasks above which a figure goes over both columns."""


def task_bars(
    tasks: Sequence[str],
    rows: Mapping[str, tuple[str, Sequence[float | None]]],
    metric: str,
    heading: Heading,
) -> Figure:
    """Return grouped bars, each with its number.

    Args:
        tasks: What stands below each group.
        rows: Role ("ours", "paper" or "untrained") → name in the legend, and one value a task or None.
        metric: Name of the score, with its unit.
        heading: What stands above.
    """
    width = PAGE if len(tasks) > WIDE else COLUMN
    figure = blank(heading, width, 2.1)
    axes = figure.add_subplot()
    thickness = 0.8 / len(rows)
    for place, (role, (name, values)) in enumerate(rows.items()):
        shift = (place - (len(rows) - 1) / 2) * thickness
        known = [(task + shift, value) for task, value in enumerate(values) if value is not None]
        bars = axes.bar(
            [x for x, _ in known], [y for _, y in known], 0.92 * thickness, label=name, linewidth=0.7, **FILLS[role]
        )
        _number(axes, bars)
    axes.set_xlim(-0.6, len(tasks) - 0.4)
    axes.margins(y=0.28)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(metric)
    for handle in figure.legend(loc="outside lower center", ncols=len(rows)).get_texts():
        handle.set_parse_math(False)
    return figure


def _number(axes: Axes, bars: BarContainer) -> None:
    """Write each bar's value at its end, upright: wide numbers on narrow bars never meet."""
    axes.bar_label(bars, fmt="{:.2f}", rotation=90, padding=2, fontsize=SMALL)


KEPT: dict[str, Any] = {
    "linestyle": "none",
    "color": CHOSEN,
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "none",
    "markeredgewidth": 1.3,
}
"""How the kept state is marked."""


def training_curve(
    curve: Mapping[int, float], selected: int | None, untrained: float | None, metric: str, heading: Heading
) -> Figure:
    """Return the score by step, the selected step marked, the level before training dashed.

    Args:
        curve: Step → score.
        selected: Step whose state was kept.
        untrained: Score before the first step, where it is known.
        metric: Name of the score, with its unit.
        heading: What stands above.
    """
    figure = blank(heading)
    axes = figure.add_subplot()
    steps = sorted(curve)
    axes.plot(steps, [curve[step] for step in steps], "-o", color=OURS, zorder=2)
    if selected is not None and math.isfinite(curve.get(selected, math.nan)):
        label = f"kept: {curve[selected]:.2f}, step {selected}"
        axes.plot([selected], [curve[selected]], label=label, zorder=3, **KEPT)
    if untrained is not None and math.isfinite(untrained):
        axes.axhline(untrained, color=UNTRAINED, linestyle=(0, (4, 2)), label=f"untrained: {untrained:.2f}", zorder=1)
    axes.set_xlim(0, None)
    axes.margins(y=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y")
    axes.set_xlabel("step")
    axes.set_ylabel(metric)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


BINS = 26
"""So that each fifth of a point of the usual scale, 0 to 5, has one: most people's scores are means of five."""


def similarity_scatter(
    gold: Sequence[float],
    cosine: Sequence[float],
    bands: tuple[Sequence[float], Sequence[float]],
    heading: Heading,
) -> Figure:
    """Return a point a pair, with the histograms of both sides at the margins.

    Args:
        gold: People's score of each pair.
        cosine: The model's.
        bands: Gold score and mean cosine of bands of pairs, joined by a line; two empty ones draw none.
        heading: What stands above.
    """
    figure = blank(heading, COLUMN, 2.8)
    grid = figure.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    points = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=points)
    beside = figure.add_subplot(grid[1, 1], sharey=points)
    # Thousands of paths would make a file of megabytes: the points alone are an image.
    opacity = min(0.6, max(0.08, 300 / len(gold)))
    points.scatter(gold, cosine, s=5, color=OURS, alpha=opacity, linewidths=0, rasterized=True)
    if len(bands[0]):
        points.plot(*bands, "-s", color=BLACK, markerfacecolor="white", label="mean of a band")
        figure.legend(loc="outside lower center")
    above.hist(gold, _centred(gold), color=OURS, alpha=0.7)
    beside.hist(cosine, _centred(cosine), color=OURS, alpha=0.7, orientation="horizontal")
    for axes, side in ((above, "left"), (beside, "bottom")):
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.spines[side].set_visible(False)
        axes.set_yticks([]) if axes is above else axes.set_xticks([])
    points.xaxis.set_major_locator(MaxNLocator(6))
    points.yaxis.set_major_locator(MaxNLocator(6))
    points.grid()
    points.set_xlabel("gold score")
    points.set_ylabel("cosine")
    return figure


def _centred(values: Sequence[float]) -> list[float]:
    """Return the edges of bins whose outermost centres are the least and the largest value."""
    low, high = min(values), max(values)
    width = (high - low) / (BINS - 1) or 1.0
    return [low + (place - 0.5) * width for place in range(BINS + 1)]


FEW = 40
"""Values up to which each has a mark of its own."""


def singular_value_spectrum(values: Sequence[float], heading: Heading) -> Figure:
    """Return the singular values of the embeddings as parts of the largest, in its order, on a logarithmic scale.

    Args:
        values: One a dimension; zeros, which have no logarithm, are left out and counted below the axis.
        heading: What stands above.
    """
    ordered = sorted((value for value in values if value > 0), reverse=True)
    figure = blank(heading)
    axes = figure.add_subplot()
    parts = [value / ordered[0] for value in ordered]
    axes.plot(range(1, len(parts) + 1), parts, color=OURS, marker="o" if len(ordered) <= FEW else "none")
    axes.set_yscale("log")
    axes.set_xlim(0, len(values) + 1)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid()
    zeros = len(values) - len(ordered)
    axes.set_xlabel("index" if not zeros else f"index ({zeros} more are zero)")
    axes.set_ylabel("singular value / largest")
    return figure


Boxes = NDArray[np.float64]
"""(n, 4): left, lower, right and upper edge, in pixels."""
Point = tuple[float, float]
"""Uniformity and alignment, both better when lower."""

MARKS: dict[str, dict[str, Any]] = {
    "ours": {"marker": "*", "s": 70, "facecolor": OURS, "edgecolor": OURS},
    "untrained": {"marker": "s", "s": 22, "facecolor": "white", "edgecolor": UNTRAINED},
    "paper": {"marker": "o", "s": 18, "facecolor": PAPER, "edgecolor": PAPER},
}
"""Role of a point → how it is marked."""
Place = tuple[int, int, str, str]
PLACES: tuple[Place, ...] = (
    (6, 0, "left", "center"), (-6, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top"),
    (4, 4, "left", "bottom"), (-4, 4, "right", "bottom"), (4, -4, "left", "top"), (-4, -4, "right", "top"),
    (0, 13, "center", "bottom"), (0, -13, "center", "top"),
)  # fmt: skip
"""Where a label may stand, the best place first: points right and up, and how it is aligned."""


@dataclass(frozen=True)
class Points:
    """What stands in the plane.

    Args:
        named: Role ("ours", "untrained" or "paper") → name → point.
        links: Names of two points joined by an arrow, the second made from the first.
        source: Where the papers' points are printed.
    """

    named: Mapping[str, Mapping[str, Point]]
    links: Sequence[tuple[str, str]] = ()
    source: str = ""


def alignment_uniformity_plane(points: Points, heading: Heading) -> Figure:
    """Return every point with its name beside it."""
    figure = blank(heading, COLUMN, 2.7)
    axes = figure.add_subplot()
    everything = {name: point for role in points.named.values() for name, point in role.items()}
    for role, those in points.named.items():
        label = points.source if role == "paper" else None
        x, y = zip(*those.values(), strict=True)
        axes.scatter(x, y, linewidths=1, label=label, zorder=3, **MARKS[role])
    for start, end in points.links:
        arrow = {"arrowstyle": "->", "color": "#aaaaaa", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 5}
        axes.annotate("", everything[end], everything[start], arrowprops=arrow, zorder=2)
    axes.margins(0.24, 0.18)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid()
    axes.set_xlabel("uniformity  (← better)")
    axes.set_ylabel("alignment  (← better)")
    if points.source:
        figure.legend(loc="outside lower center")
    figure.draw_without_rendering()  # so that the axes have their final place, and labels their size
    _label(axes, everything, points.links)
    return figure


def _label(axes: Axes, named: Mapping[str, Point], links: Sequence[tuple[str, str]]) -> None:
    """Write each name where it covers no point, no arrow and no other name, as far as there is such a place."""
    inside = np.array([axes.get_window_extent().extents])
    dot = axes.figure.dpi / 72
    marks = dict(zip(named, axes.transData.transform(list(named.values())), strict=True))
    arrows = [np.linspace(marks[one], marks[other], 40) for one, other in links]
    taken = np.vstack([_around(np.array([*marks.values()]), 3 * dot), *(_around(arrow, dot) for arrow in arrows)])
    for own, (name, point) in enumerate(named.items()):
        text = axes.annotate(name, point, (0, 0), textcoords="offset points", fontsize=SMALL, parse_math=False)
        size = text.get_window_extent()
        boxes = np.array([_beside(marks[name], size, place, dot) for place in PLACES])
        outside = size.width * size.height - _common(boxes, inside)
        best = int(np.argmin(10 * outside + _common(boxes, np.delete(taken, own, axis=0))))
        right, up, horizontal, vertical = PLACES[best]
        text.xyann = (right, up)
        text.set(ha=horizontal, va=vertical)
        taken = np.vstack([taken, boxes[best]])


def _around(marks: Boxes, radius: float) -> Boxes:
    """Return a box around each mark (n, 2)."""
    return np.hstack([marks - radius, marks + radius])


def _beside(mark: Boxes, size: Bbox, place: Place, dot: float) -> tuple[float, float, float, float]:
    """Return the box of a text of this size at a place beside a mark; `dot` is a point in pixels."""
    right, up, horizontal, vertical = place
    x = mark[0] + right * dot - {"left": 0.0, "center": 0.5, "right": 1.0}[horizontal] * size.width
    y = mark[1] + up * dot - {"bottom": 0.0, "center": 0.5, "top": 1.0}[vertical] * size.height
    return x, y, x + size.width, y + size.height


def _common(boxes: Boxes, others: Boxes) -> Boxes:
    """Return how much of each box others cover, in square pixels, overlaps of these counted twice."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared: Boxes = np.clip(high - low, 0, None).prod(axis=2).sum(axis=1)
    return shared
