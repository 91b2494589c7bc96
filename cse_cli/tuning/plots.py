"""Figures of a search for better values: how it went, where it looked, and what mattered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil, isfinite, log10
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.analysis.figures import KEPT, STEPS, add_legend
from cse_cli.core.plotting import COLUMN, OURS, PAGE, UNTRAINED, Heading, blank, save, styled
from cse_cli.tuning.results import Parameter, Search, Trial, Value

_TRIED: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": OURS, "markersize": 3.5}
_PRUNED: dict[str, Any] = {"linestyle": "none", "marker": "x", "color": UNTRAINED, "markersize": 3.5}
_OWN: dict[str, Any] = {"color": UNTRAINED, "linestyle": (0, (4, 2)), "linewidth": 0.9, "zorder": 1}
_ABREAST = 2
_ABREAST_LETTERS = 32
"""Letters of choices that fit below an axis without being turned."""


def draw(search: Search, folder: Path) -> list[Path]:
    """Write, as SVG and as PNG, each figure that there is data for; return the files."""
    files: list[Path] = []
    with styled():
        for name, figure in figures(search):
            folder.mkdir(parents=True, exist_ok=True)
            files += save(figure, folder / name)
    return files


def figures(search: Search) -> Iterator[tuple[str, Figure]]:
    """Yield name and figure; to be drawn and saved inside `styled`."""
    if not search.complete:
        return
    yield "history", history(search)
    yield "slice", slices(search)
    if len(search.importance) > 1:
        yield "importance", importance(search)


def history(search: Search) -> Figure:
    """Return the score of every trial in order, and the best so far."""
    figure = blank(Heading(f"Search: {search.metric} by trial", search.study, _counted(search)), height=2.4)
    axes = figure.add_subplot()
    done, pruned = _known(search, "complete"), _known(search, "pruned")
    best = list(accumulate((_score(trial) for trial in done), max))
    end = max(trial.number for trial in search.trials)
    axes.step([*(t.number for t in done), end], [*best, best[-1]], where="post", color=OURS, label="best so far")
    axes.plot([t.number for t in done], [_score(t) for t in done], label="complete", zorder=3, **_TRIED)
    if pruned:
        axes.plot([t.number for t in pruned], [_score(t) for t in pruned], label="pruned at", zorder=2, **_PRUNED)
    failed = [trial.number for trial in search.trials if trial.state == "failed"]
    if failed:
        marks: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False, "color": "black"}
        axes.plot(failed, [0.0] * len(failed), "|", label="failed", markersize=6, **marks)
    _mark(axes, search, lambda trial: trial.number)
    _own_level(axes, search)
    _scores(axes, search)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("trial")
    add_legend(figure)
    return figure


def slices(search: Search) -> Figure:
    """Return the score against each parameter, one panel each."""
    count = len(search.parameters)
    abreast = min(_ABREAST, count)
    rows = ceil(count / abreast)
    heading = Heading(f"Search: {search.metric} by value", search.study, _counted(search))
    figure = blank(heading, PAGE if abreast > 1 else COLUMN, 0.3 + 1.7 * rows)
    panels = list(figure.subplots(rows, abreast, sharey=True, squeeze=False).flat)
    for axes, parameter in zip(panels, search.parameters, strict=False):
        _slice(axes, parameter, search)
    for axes in panels[count:]:
        axes.set_axis_off()
    for place in range(0, count, abreast):
        panels[place].set_ylabel(search.metric)
    add_legend(figure)
    return figure


def importance(search: Search) -> Figure:
    """Return how much of what sets good trials apart is each parameter's."""
    shares = sorted(search.importance.items(), key=lambda pair: pair[1])
    note = f"share in what sets good trials apart, {_counted(search)}"
    figure = blank(Heading("Importance of the parameters", search.study, note), height=0.5 + 0.24 * len(shares))
    axes = figure.add_subplot()
    bars = axes.barh([name for name, _ in shares], [share for _, share in shares], 0.6, color=OURS)
    axes.bar_label(bars, fmt="{:.2f}", padding=2, fontsize=7)
    axes.set_xlim(0, 1.12 * max(share for _, share in shares) or 1.0)
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("importance")
    return figure


def _slice(axes: Axes, parameter: Parameter, search: Search) -> None:
    places = None if parameter.choices is None else {choice: at for at, choice in enumerate(parameter.choices)}

    def place(trial: Trial) -> float:
        value: Any = trial.values[parameter.name]
        return float(value if places is None else places[value])

    for state, label, looks in (("complete", "complete", _TRIED), ("pruned", "pruned at", _PRUNED)):
        shown = [trial for trial in _known(search, state) if trial.values.get(parameter.name) is not None]
        if shown:
            axes.plot([place(t) for t in shown], [_score(t) for t in shown], label=label, zorder=3, **looks)
    _mark(axes, search, lambda trial: place(trial) if trial.values.get(parameter.name) is not None else None)
    _own_value(axes, parameter, places)
    if places is not None:
        _choices(axes, list(places))
    else:
        _searched(axes, parameter)
    _scores(axes, search, labelled=False)
    axes.set_xlabel(parameter.name, parse_math=False)


def _own_value(axes: Axes, parameter: Parameter, places: Mapping[Value, int] | None) -> None:
    if parameter.default is not None:
        at = parameter.default if places is None else places[parameter.default]
        if isinstance(at, int | float):
            axes.axvline(at, label="recipe's own", **_OWN)


def _searched(axes: Axes, parameter: Parameter) -> None:
    """Show the whole range, so that a part where nothing was tried is seen."""
    own = [parameter.default] if isinstance(parameter.default, int | float) else []
    reached = [float(value) for value in (parameter.low, parameter.high, *own) if value is not None]
    if parameter.log:
        axes.set_xscale("log")
        reached = [log10(value) for value in reached if value > 0]
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=parameter.whole))
    spare = 0.05 * (max(reached) - min(reached))
    ends = (min(reached) - spare, max(reached) + spare)
    axes.set_xlim((10 ** ends[0], 10 ** ends[1]) if parameter.log else ends)


def _choices(axes: Axes, choices: Sequence[Value]) -> None:
    names = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]
    axes.set_xticks(range(len(names)), names, rotation=30 if sum(map(len, names)) > _ABREAST_LETTERS else 0)
    axes.set_xlim(-0.5, len(names) - 0.5)


def _mark(axes: Axes, search: Search, place: Any) -> None:
    best = search.best
    if best is not None and (at := place(best)) is not None:
        axes.plot([at], [_score(best)], label=f"best: {_score(best):.2f}", zorder=4, clip_on=False, **KEPT)


def _own_level(axes: Axes, search: Search) -> None:
    if search.own is not None:
        axes.axhline(_score(search.own), label=f"recipe's own: {_score(search.own):.2f}", **_OWN)


def _scores(axes: Axes, search: Search, *, labelled: bool = True) -> None:
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.grid(axis="y")
    if labelled:
        axes.set_ylabel(search.metric)


def _known(search: Search, state: str) -> list[Trial]:
    return [t for t in search.trials if t.state == state and t.score is not None and isfinite(t.score)]


def _score(trial: Trial) -> float:
    return float("nan") if trial.score is None else trial.score


def _counted(search: Search) -> str:
    parts = [
        (search.count("complete"), "complete"),
        (search.count("pruned"), "pruned"),
        (search.count("failed"), "failed"),
    ]
    return ", ".join(f"{count} {what}" for count, what in parts if count)
