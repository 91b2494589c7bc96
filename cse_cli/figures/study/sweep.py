"""The score against one setting or one measure: ours, and the paper's numbers where it prints them."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from cse_cli.figures.study.panels import DASHES, STEPS, Labels, Side, legend, look, same_span, sides, together
from cse_cli.figures.study.points import Point
from cse_cli.figures.style import BLACK, GREY, PURPLE, Heading, blank

APART = 0.12
"""Part of the axis between two of its labels, at least."""
LEVELS = (GREY, BLACK, PURPLE)
"""Colours of what has no place on the axis."""


def sweep(points: Sequence[Point], labels: Labels, heading: Heading) -> Figure:
    """Return ours and the paper's in one panel where their scores lie close, else below each other with equal spans.

    A second axis would let the choice of its scale decide how alike both look; with equal spans slopes can be compared.
    """
    drawn = sides(points, labels)
    spans = [side.span(points) for side in drawn]
    lines = list(dict.fromkeys(point.line for point in points if point.x is not None))
    shared = len(lines) == 1 and together(spans)
    panels = 1 if shared else len(drawn)
    figure = blank(heading, height=0.4 + (1.4 if panels > 1 else 1.8) * panels)
    every = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    for place, side in enumerate(drawn):
        axes = every[0 if shared else place]
        _lines(axes, points, lines, side, labels, named=shared and len(drawn) > 1)
        _levels(axes, points, side)
        if panels > 1:
            axes.set_title(side.name, loc="left", fontsize=7, parse_math=False)
            axes.set_ylim(same_span(spans)[place])
    _axes(figure, every, points, labels)
    legend(figure)
    return figure


def _lines(
    axes: Axes, points: Sequence[Point], lines: Sequence[str], side: Side, labels: Labels, *, named: bool
) -> None:
    """Draw each line and the deviations of its points; `named` puts the side's name into the legend."""
    for place, line in enumerate(lines):
        own = [(p.x, *number) for p in points if p.line == line and p.x is not None and (number := side.number(p))]
        if own:
            x, mean, std = zip(*sorted(own), strict=True)
            looks = dict(side.looks) if len(lines) == 1 else look(place)
            if not labels.joined:
                looks["linestyle"] = "none"
            bars: dict[str, Any] = {"yerr": std, "capsize": 2, "elinewidth": 0.8} if any(std) else {}
            axes.errorbar(x, mean, label=(side.name if named else line) or None, zorder=3, **looks, **bars)


def _levels(axes: Axes, points: Sequence[Point], side: Side) -> None:
    """Draw a level for each setting that has no place on the axis, such as one without the component."""
    for place, point in enumerate(point for point in points if point.x is None):
        if number := side.number(point):
            looks: dict[str, Any] = {"color": LEVELS[place % len(LEVELS)], "linewidth": 0.9, "zorder": 1}
            axes.axhline(number[0], label=point.label, linestyle=DASHES[1 + place % (len(DASHES) - 1)], **looks)
            if number[1]:
                across: dict[str, Any] = {
                    "transform": axes.get_yaxis_transform(),
                    "fmt": "none",
                    "capsize": 2,
                    "elinewidth": 0.8,
                }
                axes.errorbar([0.99 - 0.02 * place], [number[0]], yerr=[number[1]], ecolor=looks["color"], **across)


def _axes(figure: Figure, every: Sequence[Axes], points: Sequence[Point], labels: Labels) -> None:
    for axes in every:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.grid()
    lowest = every[-1]
    if labels.log_x:
        lowest.set_xscale("log")
        lowest.xaxis.set_minor_locator(NullLocator())
    if labels.measured:
        lowest.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if labels.log_x else MaxNLocator(6))
        lowest.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        ticks = _ticks([point.x for point in points if point.x is not None], log=labels.log_x)
        lowest.set_xticks(ticks, [f"{tick:g}".replace("e-0", "e-") for tick in ticks])
    lowest.set_xlabel(labels.x)
    figure.supylabel(labels.y, fontsize=7.5) if len(every) > 1 else lowest.set_ylabel(labels.y)


def _ticks(values: Sequence[float], *, log: bool) -> list[float]:
    """Return the values that stand far enough apart to be written below the axis."""
    placed = {value: log10(value) if log else value for value in sorted(values)}
    apart = APART * (max(placed.values()) - min(placed.values())) if placed else 0.0
    kept: list[float] = []
    for value, place in placed.items():
        if not kept or place - placed[kept[-1]] >= apart:
            kept.append(value)
    return kept
