"""The dev score while training went on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.style import CHOSEN, OURS, UNTRAINED, Heading, blank

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
