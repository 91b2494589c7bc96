"""What people and the model say of each sentence pair."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.style import BLACK, COLUMN, OURS, Heading, blank

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
