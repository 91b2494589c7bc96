"""The dev score by step of several settings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.study.panels import STEPS, Labels, legend, look
from cse_cli.figures.study.points import Curve, spread
from cse_cli.figures.style import UNTRAINED, Heading, blank

FILL = 0.16
"""Opacity of a band."""
SAME = 0.005
"""Difference below which levels before training print alike."""


def curves(found: Sequence[Curve], labels: Labels, heading: Heading) -> Figure:
    """Return the mean over the seeds by step in a band of one standard deviation, its highest point marked."""
    figure = blank(heading, height=2.1 + 0.13 * len(found))
    axes = figure.add_subplot()
    for place, curve in enumerate(found):
        _draw(axes, curve, place)
    before = [score for curve in found for score in curve.before]
    # Encoders that differ start from levels that do: then no single line would be true.
    if before and max(before) - min(before) < SAME:
        level: dict[str, Any] = {"color": UNTRAINED, "linestyle": (0, (4, 2)), "marker": "none", "zorder": 1}
        axes.axhline(fmean(before), label=f"untrained: {fmean(before):.2f}", **level)
    axes.set_xlim(0, None)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.grid(axis="y")
    axes.set_xlabel(labels.x)
    axes.set_ylabel(labels.y)
    legend(figure)
    return figure


def _draw(axes: Axes, curve: Curve, place: int) -> None:
    at_steps = [spread(scores) for scores in zip(*curve.scores, strict=True)]
    means = [mean for mean, _ in at_steps]
    looks, best = look(place), max(range(len(means)), key=means.__getitem__)
    mark: dict[str, Any] = {"markevery": [best], "markersize": 5.5, "markerfacecolor": "white", "markeredgewidth": 1.2}
    axes.plot(curve.steps, means, label=f"{curve.label}: {best_of(curve)}", zorder=3, **looks, **mark)
    if len(curve.scores) > 1:
        low, high = ([mean + sign * std for mean, std in at_steps] for sign in (-1, 1))
        axes.fill_between(curve.steps, low, high, color=looks["color"], alpha=FILL, linewidth=0, zorder=2)


def best_of(curve: Curve) -> str:
    """Return how high the seeds came, each at its own best step, and when that was."""
    tops = [max(zip(scores, (-step for step in curve.steps), strict=True)) for scores in curve.scores]
    score, step = spread([top for top, _ in tops]), spread([-float(negative) for _, negative in tops])
    if len(tops) == 1:
        return f"best {score[0]:.2f} at step {step[0]:.0f}"
    return f"best {score[0]:.2f} ± {score[1]:.2f} at step {step[0]:.0f} ± {step[1]:.0f}"
