"""Figures of a search: history, slices, contours and importances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from cse_cli.core.plotting import CHOSEN, MEASURED, PAGE, Heading, add_legend, label_axes, new_figure, save_figures
from cse_cli.tuning.parameters import Parameter, show_value
from cse_cli.tuning.results import Search, Trial

FEWEST = 4
"""Minimum number of complete trials for contours."""
_OWN: dict[str, Any] = {"marker": "*", "s": 60, "color": CHOSEN, "zorder": 4, "label": "recipe's own value"}
_OTHERS: dict[str, Any] = {"s": 12, "color": MEASURED, "label": "trial"}


def draw(search: Search, directory: Path) -> list[Path]:
    """Write each figure that has data as SVG and PNG, and return the files.

    `history` shows the score of every trial and the best so far, `slice` the score by the value of each parameter,
    `contour` that of two numeric ones, and `importance` each parameter's share of the score's variance. The trial with
    the recipe's own values is marked in each.
    """
    return save_figures(_figures(search), directory) if search.complete else []


def _figures(search: Search) -> Iterator[tuple[str, Figure]]:
    parameters = search.config.parameters
    heading = Heading(f"{search.metric} of the trials", f"{search.config.recipe} · {search.config.scored_by}")
    trials = sorted(search.complete, key=lambda trial: trial.number)
    figure = new_figure(heading)
    numbers = [trial.number for trial in trials]
    axes = figure.add_subplot()
    best = list(accumulate(_scores(trials), max))
    axes.step(numbers, best, where="post", color=MEASURED, marker="none", label="best so far")
    _scatter(axes, trials, dict(zip(numbers, numbers, strict=True)))
    label_axes(axes, "trial", search.metric, grid="y")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    add_legend(figure)
    yield "history", figure

    figure = new_figure(heading, width=PAGE, height=2.0 * ((len(parameters) + 2) // 3))
    for place, parameter in enumerate(parameters, start=1):
        axes = figure.add_subplot((len(parameters) + 2) // 3, min(3, len(parameters)), place)
        _scatter(axes, trials, _places(parameter, trials))
        label_axes(axes, "", search.metric, grid="y")
        _scale(axes, parameter, "x")
    add_legend(figure)
    yield "slice", figure

    ordered = [one for one in parameters if one.choices is None and one.when is None]
    if len(parameters) == len(ordered) == 2 and len(trials) >= FEWEST:
        first, second = (_places(parameter, trials) for parameter in ordered)
        shown = [trial for trial in trials if trial.number in first and trial.number in second]
        figure = new_figure(heading, height=2.6)
        axes = figure.add_subplot()
        for parameter, axis in zip(ordered, "xy", strict=True):
            _scale(axes, parameter, axis)
        x, y = ([places[trial.number] for trial in shown] for places in (first, second))
        even = [np.log(at) if one.log else np.array(at) for one, at in zip(ordered, (x, y), strict=True)]
        triangles = Triangulation(*((at - at.min()) / np.ptp(at) for at in even)).triangles
        figure.colorbar(axes.tricontourf(Triangulation(x, y, triangles), _scores(shown)), label=search.metric)
        _scatter(axes, shown, first, second)
        add_legend(figure)
        yield "contour", figure

    if search.importance:
        figure = new_figure(heading, height=0.4 + 0.25 * len(search.importance))
        axes = figure.add_subplot()
        names = list(search.importance)[::-1]
        axes.barh(names, [search.importance[name] for name in names], color=MEASURED)
        axes.set_xlabel("share of the score's variance")
        yield "importance", figure


def _scores(trials: Sequence[Trial]) -> list[float]:
    return [trial.score for trial in trials if trial.score is not None]


def _places(parameter: Parameter, trials: Sequence[Trial]) -> dict[int, Any]:
    """Return number of a trial → its value on an axis, the recipe's own for the trial that has it."""
    values = {
        trial.number: trial.values.get(parameter.name, parameter.default if trial.own else None) for trial in trials
    }
    as_text = parameter.choices is not None
    return {number: show_value(value) if as_text else value for number, value in values.items() if value is not None}


def _scatter(axes: Axes, trials: Sequence[Trial], x: dict[int, Any], y: dict[int, Any] | None = None) -> None:
    """Draw a point for each trial, at its score or at its place on the second axis."""
    for own, looks in ((False, _OTHERS), (True, _OWN)):
        shown = [trial for trial in trials if trial.own == own and trial.number in x]
        heights = _scores(shown) if y is None else [y[trial.number] for trial in shown]
        axes.scatter([x[trial.number] for trial in shown], heights, **looks)


def _scale(axes: Axes, parameter: Parameter, axis: str) -> None:
    axes.set(**{f"{axis}label": parameter.name.rpartition(".")[2]})
    if parameter.log:
        axes.set(**{f"{axis}scale": "log"})
