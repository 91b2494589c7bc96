"""The figures of a run: tasks, training curve, losses, sentence pairs, singular values, alignment and uniformity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from cse_cli.core.plotting import (
    BLACK,
    BLUE,
    CHOSEN,
    COLUMN,
    GREEN,
    ORANGE,
    OURS,
    PAGE,
    PAPER,
    PURPLE,
    SKY,
    SMALL,
    UNTRAINED,
    VERMILLION,
    Heading,
    new_figure,
)

COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), "-.")
STEPS = [1, 2, 2.5, 5, 10]
"""Between ticks, times a power of ten."""
HANDLE, LETTER = 0.4, 0.06
"""Inches of a legend's entry: beside its text, and for each letter of it."""
GUIDE: dict[str, Any] = {"color": UNTRAINED, "linestyle": (0, (4, 2)), "marker": "none", "zorder": 1}
"""The line at the score before training."""


def line_style(place: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line at a place; told apart in grey as well."""
    own = place % len(COLOURS)
    return {"color": COLOURS[own], "marker": MARKERS[own], "linestyle": DASHES[own]}


def add_legend(figure: Figure) -> None:
    """Write below everything what each line is, where lines have names; side by side where there is room."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
    if named:
        columns = max(1, int(figure.get_figwidth() / (HANDLE + LETTER * max(map(len, named)))))
        legend = figure.legend(named.values(), named, loc="outside lower center", ncols=min(columns, len(named)))
        for text in legend.get_texts():
            text.set_parse_math(False)


def axis_by_step(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes of what is drawn by training step."""
    axes.set_xlim(0, None)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.grid(axis="y")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


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
    figure = new_figure(heading, width, 2.1)
    axes = figure.add_subplot()
    thickness = 0.8 / len(rows)
    for place, (role, (name, values)) in enumerate(rows.items()):
        shift = (place - (len(rows) - 1) / 2) * thickness
        known = [(task + shift, value) for task, value in enumerate(values) if value is not None]
        bars = axes.bar(
            [x for x, _ in known], [y for _, y in known], 0.92 * thickness, label=name, linewidth=0.7, **FILLS[role]
        )
        # Upright: wide numbers on narrow bars never meet.
        axes.bar_label(bars, fmt="{:.2f}", rotation=90, padding=2, fontsize=SMALL)
    axes.set_xlim(-0.6, len(tasks) - 0.4)
    axes.margins(y=0.28)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(metric)
    add_legend(figure)
    return figure


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
    figure = new_figure(heading)
    axes = figure.add_subplot()
    steps = sorted(curve)
    axes.plot(steps, [curve[step] for step in steps], "-o", color=OURS, zorder=2)
    if selected is not None and math.isfinite(curve.get(selected, math.nan)):
        label = f"kept: {curve[selected]:.2f}, step {selected}"
        axes.plot([selected], [curve[selected]], label=label, zorder=3, **KEPT)
    if untrained is not None and math.isfinite(untrained):
        axes.axhline(untrained, label=f"untrained: {untrained:.2f}", **GUIDE)
    axis_by_step(axes, "step", metric)
    add_legend(figure)
    return figure


Points = Sequence[tuple[int, float]]
"""Step and value, in order of step."""


def loss_curves(whole: Points, parts: Mapping[str, Points], heading: Heading) -> Figure:
    """Return the loss by step, each of its parts beside it; to be drawn and saved inside `styled`.

    Args:
        whole: The loss that was minimised.
        parts: Name → one loss before it is weighted; left out where it is the whole.
        heading: What stands above.
    """
    figure = new_figure(heading, height=2.0 + 0.13 * len(parts))
    axes = figure.add_subplot()
    shown = {name: points for name, points in parts.items() if list(points) != list(whole)}
    for place, (name, points) in enumerate(shown.items()):
        axes.plot(*_finite(points), label=name, linewidth=0.9, **{**line_style(place), "marker": "none"})
    axes.plot(*_finite(whole), color=BLACK, label="minimised" if shown else "_", zorder=3)
    axis_by_step(axes, "step", "loss")
    add_legend(figure)
    return figure


def _finite(points: Points) -> tuple[list[int], list[float]]:
    kept = [(step, value) for step, value in points if math.isfinite(value)]
    return [step for step, _ in kept], [value for _, value in kept]


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
    figure = new_figure(heading, COLUMN, 2.8)
    grid = figure.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    points = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=points)
    beside = figure.add_subplot(grid[1, 1], sharey=points)
    # Thousands of paths would make a file of megabytes: the points alone are an image.
    opacity = min(0.6, max(0.08, 300 / len(gold)))
    points.scatter(gold, cosine, s=5, color=OURS, alpha=opacity, linewidths=0, rasterized=True)
    if len(bands[0]):
        points.plot(*bands, "-s", color=BLACK, markerfacecolor="white", label="mean of a band")
        add_legend(figure)
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
    figure = new_figure(heading)
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


Place = tuple[int, int, str, str]
PLACES: tuple[Place, ...] = (
    (6, 0, "left", "center"), (-6, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top"),
    (4, 4, "left", "bottom"), (-4, 4, "right", "bottom"), (4, -4, "left", "top"), (-4, -4, "right", "top"),
    (0, 13, "center", "bottom"), (0, -13, "center", "top"),
)  # fmt: skip
"""Where a label may stand, the best place first: points right and up, and how it is aligned."""
MARKS: dict[str, dict[str, Any]] = {
    "ours": {"marker": "*", "s": 70, "facecolor": OURS, "edgecolor": OURS},
    "untrained": {"marker": "s", "s": 22, "facecolor": "white", "edgecolor": UNTRAINED},
    "paper": {"marker": "o", "s": 18, "facecolor": PAPER, "edgecolor": PAPER},
}
"""Role of a point → how it is marked."""
UniformityAlignment = tuple[float, float]
"""Both better when lower."""


@dataclass(frozen=True)
class PlanePoints:
    """What stands in the plane.

    Args:
        named: Role ("ours", "untrained" or "paper") → name → uniformity and alignment.
        links: Names of two points joined by an arrow, the second made from the first.
        source: Where the papers' points are printed.
    """

    named: Mapping[str, Mapping[str, UniformityAlignment]]
    links: Sequence[tuple[str, str]] = ()
    source: str = ""


def alignment_uniformity_plane(points: PlanePoints, heading: Heading) -> Figure:
    """Return every point with its name beside it."""
    figure = new_figure(heading, COLUMN, 2.7)
    axes = figure.add_subplot()
    everything = {name: point for role in points.named.values() for name, point in role.items()}
    for role, of_role in points.named.items():
        label = points.source if role == "paper" else None
        axes.scatter(*zip(*of_role.values(), strict=True), linewidths=1, label=label, zorder=3, **MARKS[role])
    for start, end in points.links:
        arrow = {"arrowstyle": "->", "color": "#aaaaaa", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 5}
        axes.annotate("", everything[end], everything[start], arrowprops=arrow, zorder=2)
    axes.margins(0.24, 0.18)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid()
    axes.set_xlabel("uniformity  (← better)")
    axes.set_ylabel("alignment  (← better)")
    add_legend(figure)
    figure.draw_without_rendering()  # so that the axes have their final place, and labels their size
    _label_points(axes, everything, points.links)
    return figure


def _label_points(axes: Axes, named: Mapping[str, UniformityAlignment], links: Sequence[tuple[str, str]]) -> None:
    """Write each name where it covers no point, no arrow and no other name, as far as there is such a place."""
    inside = axes.get_window_extent()
    dot = axes.figure.dpi / 72
    marks = {name: axes.transData.transform(point) for name, point in named.items()}
    around = {name: Bbox([mark - 3 * dot, mark + 3 * dot]) for name, mark in marks.items()}
    arrows = [at for one, other in links for at in np.linspace(marks[one], marks[other], 40)]
    taken = [Bbox([at - dot, at + dot]) for at in arrows]
    for name, point in named.items():
        text = axes.annotate(name, point, (0, 0), textcoords="offset points", fontsize=SMALL, parse_math=False)
        others = [*taken, *(box for other, box in around.items() if other != name)]
        costs = []
        for place in PLACES:
            _move(text, place)
            box = text.get_window_extent()
            outside = not (inside.contains(*box.min) and inside.contains(*box.max))
            costs.append((outside, sum(_overlap(box, other) for other in others)))
        _move(text, PLACES[costs.index(min(costs))])
        taken.append(text.get_window_extent())


def _move(text: Annotation, place: Place) -> None:
    right, up, horizontal, vertical = place
    text.xyann = (right, up)
    text.set(ha=horizontal, va=vertical)


def _overlap(box: Bbox, other: Bbox) -> float:
    """Return how much of a box another one covers, in square pixels."""
    common = Bbox.intersection(box, other)
    return 0.0 if common is None else common.width * common.height
