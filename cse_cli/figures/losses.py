"""What training minimised, by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.study.panels import legend, look
from cse_cli.figures.style import BLACK, Heading, blank

Points = Sequence[tuple[int, float]]
"""Step and value, in order of step."""


def losses(whole: Points, parts: Mapping[str, Points], heading: Heading) -> Figure:
    """Return the loss by step, each of its parts beside it; to be drawn and saved inside `styled`.

    Args:
        whole: The loss that was minimised.
        parts: Name → one loss before it is weighted; left out where it is the whole.
        heading: What stands above.
    """
    figure = blank(heading, height=2.0 + 0.13 * len(parts))
    axes = figure.add_subplot()
    shown = {name: points for name, points in parts.items() if list(points) != list(whole)}
    for place, (name, points) in enumerate(shown.items()):
        axes.plot(*_finite(points), label=name, linewidth=0.9, **{**look(place), "marker": "none"})
    axes.plot(*_finite(whole), color=BLACK, label="minimised" if shown else "_", zorder=3)
    axes.set_xlim(0, None)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    legend(figure)
    return figure


def _finite(points: Points) -> tuple[list[int], list[float]]:
    kept = [(step, value) for step, value in points if isfinite(value)]
    return [step for step, _ in kept], [value for _, value in kept]
