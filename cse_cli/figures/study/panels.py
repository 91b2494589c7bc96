"""How the settings of a study are told apart, and how our panel and the paper's are made comparable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from cse_cli.figures.study.points import Point
from cse_cli.figures.style import BLACK, BLUE, GREEN, ORANGE, OURS, PAPER, PURPLE, SKY, VERMILLION

COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STEPS = [1, 2, 2.5, 5, 10]
"""Between ticks, times a power of ten."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), "-.")
SPARE = 0.12
"""Part of a range left free at both of its ends."""
ROOM = 2.0
"""Times the wider of two ranges that one axis may hold: beyond it, each gets a panel."""

HANDLE, LETTER = 0.4, 0.06
"""Inches of a legend's entry: beside its text, and for each letter of it."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Labels:
    """What a figure says beside its numbers.

    Args:
        x: Of the axis.
        y: Of the axis.
        ours: Whose our numbers are.
        paper: Where the printed ones stand.
        log_x: Logarithmic x axis.
        measured: Whether x was measured, not set.
        joined: Whether the points of a line are joined.
    """

    x: str
    y: str
    ours: str
    paper: str = ""
    log_x: bool = False
    measured: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Args:
        name: Above its panel, or in the legend.
        number: Point → mean and standard deviation, None where there is no number.
        looks: Of its points, where each side has but one line.
    """

    name: str
    number: Callable[[Point], tuple[float, float] | None]
    looks: dict[str, Any]

    def span(self, points: Sequence[Point]) -> Range:
        """Return what means and deviations reach."""
        found = [number for point in points if (number := self.number(point))]
        return min(mean - std for mean, std in found), max(mean + std for mean, std in found)


def sides(points: Sequence[Point], labels: Labels) -> list[Side]:
    """Return ours and, where anything is printed, the paper's."""
    ours = Side(labels.ours, lambda point: point.ours, {"color": OURS, "marker": "o", "linestyle": "-"})
    looks = {"color": PAPER, "marker": "s", "linestyle": (0, (4, 2)), "markerfacecolor": "white"}
    paper = Side(labels.paper, lambda point: None if point.printed is None else (point.printed, 0.0), looks)
    return [side for side in (ours, paper) if any(side.number(point) for point in points)]


def look(place: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line at a place; told apart in grey as well."""
    own = place % len(COLOURS)
    return {"color": COLOURS[own], "marker": MARKERS[own], "linestyle": DASHES[own]}


def together(ranges: Sequence[Range]) -> bool:
    """Tell whether one axis shows all ranges without pressing any flat."""
    widest = max(high - low for low, high in ranges)
    return max(high for _, high in ranges) - min(low for low, _ in ranges) <= ROOM * widest


def same_span(ranges: Sequence[Range]) -> list[Range]:
    """Return a range around each one, all of one length: a point more looks the same in every panel."""
    half = (max(high - low for low, high in ranges) or 1.0) * (0.5 + SPARE)
    return [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in ranges]


def legend(figure: Figure) -> None:
    """Write below everything what each line is, where lines have names; side by side where there is room."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
    if named:
        columns = max(1, int(figure.get_figwidth() / (HANDLE + LETTER * max(map(len, named)))))
        shown = figure.legend(named.values(), named, loc="outside lower center", ncols=min(columns, len(named)))
        for text in shown.get_texts():
            text.set_parse_math(False)
