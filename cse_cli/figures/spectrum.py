"""How many directions the embeddings use."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.style import OURS, Heading, blank

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
