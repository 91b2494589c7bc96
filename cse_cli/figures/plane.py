"""Alignment against uniformity: where a run stands among the papers' printed points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from cse_cli.figures.style import COLUMN, OURS, PAPER, SMALL, UNTRAINED, Heading, blank

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
