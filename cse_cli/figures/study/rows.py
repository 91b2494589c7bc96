"""Settings that are names, not numbers, such as components left out: ours, and the paper's where it prints them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.study.panels import STEPS, Labels, legend, look, same_span, sides, together
from cse_cli.figures.study.points import Point
from cse_cli.figures.style import COLUMN, PAGE, Heading, blank

LETTERS = 24
"""Letters of a name on one line."""


def rows(points: Sequence[Point], labels: Labels, heading: Heading) -> Figure:
    """Return a row a setting: both sides in one panel where scores lie close, else beside each other, equal spans."""
    drawn = sides(points, labels)
    spans = [side.span(points) for side in drawn]
    names = list(dict.fromkeys(point.label for point in points))
    lines = list(dict.fromkeys(point.line for point in points))
    shared = len(lines) == 1 and together(spans)
    panels = 1 if shared else len(drawn)
    wrapped = [textwrap.fill(name, LETTERS) for name in names]
    tall = 0.06 + 0.13 * max(1 + name.count("\n") for name in wrapped)
    figure = blank(heading, PAGE if panels > 1 else COLUMN, 0.7 + tall * len(names))
    every = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    for place, side in enumerate(drawn):
        axes = every[0 if shared else place]
        for number, line in enumerate(lines):
            own = [(names.index(p.label), *found) for p in points if p.line == line and (found := side.number(p))]
            if own:
                y, mean, std = zip(*own, strict=True)
                looks = {**(side.looks if len(lines) == 1 else look(number)), "linestyle": "none"}
                bars: dict[str, Any] = {"xerr": std, "capsize": 2, "elinewidth": 0.8} if any(std) else {}
                label = side.name if shared and len(drawn) > 1 else line
                axes.errorbar(mean, y, label=label or None, zorder=3, **looks, **bars)
        if panels > 1:
            axes.set_title(side.name, loc="left", fontsize=7, parse_math=False)
            axes.set_xlim(same_span(spans)[place])
    for axes in every:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.grid()
        axes.set_xlabel(labels.y)
    every[0].set_yticks(range(len(names)), wrapped, parse_math=False)
    every[0].set_ylim(len(names) - 0.5, -0.5)
    legend(figure)
    return figure
