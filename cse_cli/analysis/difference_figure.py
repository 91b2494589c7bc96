"""Figure of the differences between the rows of a study and its first row, with corrected intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from cse_cli.analysis.compare_summary import BASELINE, NONE, Line, baseline_of, summary_lines
from cse_cli.analysis.methods import compare_rows
from cse_cli.analysis.paper_tables import StudyRuns
from cse_cli.core.formatting import counted
from cse_cli.core.plotting import (
    BLACK,
    CHOSEN,
    COLUMN,
    LETTER,
    MEASURED,
    PAGE,
    UNTRAINED,
    Heading,
    add_legend,
    label_axes,
    new_figure,
    score_name,
)
from cse_cli.recipe.study_schema import FigureSpec
from registry.errors import CseError

DIFFERENCE = "difference"
"""Value of a figure's `x`."""
ROW, AROUND = 0.14, 0.8
"""Height of one row, and of axis and legend together, in inches."""
_BETTER: dict[str, Any] = {"color": MEASURED, "marker": "o"}
_WORSE: dict[str, Any] = {"color": CHOSEN, "marker": "s"}
_STYLES: dict[str, dict[str, Any]] = {
    "better": _BETTER,
    "higher": _BETTER,
    NONE: {"color": UNTRAINED, "marker": "o", "markerfacecolor": "white", "label": "not significant"},
    "worse": _WORSE,
    "lower": _WORSE,
    BASELINE: {"color": BLACK, "marker": "D"},
}
"""Verdict → style, in the order of the legend. Markers differ in gray, too."""


def difference_figure(runs: StudyRuns) -> Figure | None:
    """Return the figure of a study whose `x` is "difference", or None if no rows can be compared."""
    study, spec = runs.study, runs.study.figure or FigureSpec(x=DIFFERENCE)
    score = spec.y or study.score
    try:
        document = compare_rows(runs, study.name, score)
    except CseError:
        return None
    score = score or document.comparisons[0].main.metric
    lines = summary_lines(document, score)
    counts = sorted({len(line.scores) for line in lines})
    seeds = counted(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    together = f"{counted(document.corrected_for, 'interval')} with 95 % together"
    missing = len(runs.rows_without_runs())
    note = f"{missing} of {counted(len(runs.rows), 'row')} have no finished runs" if missing else ""
    heading = Heading(study.title, f"compared with {baseline_of(document)}; {seeds}; {together}", note)
    return draw_differences(lines, spec.xlabel or f"difference, {score_name(score)}", heading)


def draw_differences(lines: Sequence[Line], label: str, heading: Heading) -> Figure:
    """Draw one row for each line: the difference as a dot with its interval, in color if the interval excludes 0."""
    longest = LETTER * max(len(line.name) for line in lines)
    figure = new_figure(heading, COLUMN if longest < COLUMN / 3 else PAGE, AROUND + ROW * len(lines))
    axes = figure.add_subplot()
    axes.axvline(0, color=BLACK, linewidth=0.6, zorder=1)
    for verdict, own in _STYLES.items():
        placed = [(line.difference, place, _reach(line)) for place, line in enumerate(lines) if line.verdict == verdict]
        if placed:
            x, y, reach = zip(*placed, strict=True)
            style = {"linestyle": "none", "elinewidth": 0.9, "capsize": 1.5, "zorder": 3, "label": verdict, **own}
            axes.errorbar(x, y, xerr=reach, **style)
    label_axes(axes, label, "")
    axes.set_yticks(range(len(lines)), [line.name for line in lines], parse_math=False)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    add_legend(figure)
    return figure


def _reach(line: Line) -> float:
    """Return half the length of the interval, or 0 if it is unbounded or there is no test."""
    over = None if line.tested is None else line.tested.over_seeds
    return 0.0 if over is None or over.high is None else over.high - over.difference
