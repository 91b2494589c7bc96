"""The scores of several tasks beside those of something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.style import COLUMN, OURS, PAGE, PAPER, SMALL, UNTRAINED, Heading, blank

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
    figure = blank(heading, width, 2.1)
    axes = figure.add_subplot()
    thickness = 0.8 / len(rows)
    for place, (role, (name, values)) in enumerate(rows.items()):
        shift = (place - (len(rows) - 1) / 2) * thickness
        known = [(task + shift, value) for task, value in enumerate(values) if value is not None]
        bars = axes.bar(
            [x for x, _ in known], [y for _, y in known], 0.92 * thickness, label=name, linewidth=0.7, **FILLS[role]
        )
        _number(axes, bars)
    axes.set_xlim(-0.6, len(tasks) - 0.4)
    axes.margins(y=0.28)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(metric)
    for handle in figure.legend(loc="outside lower center", ncols=len(rows)).get_texts():
        handle.set_parse_math(False)
    return figure


def _number(axes: Axes, bars: BarContainer) -> None:
    """Write each bar's value at its end, upright: wide numbers on narrow bars never meet."""
    axes.bar_label(bars, fmt="{:.2f}", rotation=90, padding=2, fontsize=SMALL)
