"""The figure of a study, written to a folder.

The score against one setting or one measure: ours, and the paper's numbers where it prints them.

The dev score by step of several settings.

Settings that are names, not numbers, such as components left out: ours, and the paper's where it prints them.

How the settings of a study are told apart, and how our panel and the paper's are made comparable.

What training minimised, by step.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from cse_cli.analysis.run_figures import unit
from cse_cli.analysis.study_points import MEASURE, ROW, STEP, Curve, Findings, Point, spread
from cse_cli.core.plotting import (
    BLACK,
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    OURS,
    PAGE,
    PAPER,
    PURPLE,
    SKY,
    UNTRAINED,
    VERMILLION,
    Heading,
    blank,
    save,
    styled,
)
from cse_cli.core.results import Result
from cse_cli.recipe.cells import Cell
from cse_cli.recipe.study import Study
from registry import papers
from registry.papers import AVERAGE

MEAN = "mean Spearman × 100"
NAMED = 2
"""Recipes that a heading names, at most."""


def draw_study(study: Study, cells: Sequence[Cell], results: Iterable[Result], folder: Path) -> list[Path]:
    """Write, as SVG and as PNG, the figure that a study asks for; return the files: none without anything to draw.

    Args:
        study: Without a figure, nothing is drawn.
        cells: Of the study.
        results: Finished runs; those of other recipes than the cells' are left out.
        folder: Made if missing. The files are named after the study.
    """
    findings = Findings(study, cells, results)
    if study.figure is None or not findings.finished():
        return []
    with styled():
        figure = _figure(findings)
        if figure is None:
            return []
        folder.mkdir(parents=True, exist_ok=True)
        return save(figure, folder / study.name.rpartition("/")[2])


def _figure(findings: Findings) -> Figure | None:
    """Return the figure, None where the runs lack what it shows; to be drawn and saved inside `styled`."""
    spec, heading = findings.figure, _heading(findings)
    if spec.x == STEP:
        found = findings.curves()
        labels = Labels(spec.xlabel or STEP, spec.ylabel or _named(spec.y or findings.study.score or ""), "")
        return curves(found, labels, heading) if found else None
    points = findings.points()
    if not any(point.values for point in points):
        return None
    labels = Labels(
        x=spec.xlabel or spec.x.removeprefix(MEASURE),
        y=spec.ylabel or " or ".join(dict.fromkeys(_named(score) for score in findings.scores() if score)),
        ours="this study",
        paper=_source(findings.study),
        log_x=spec.log_x,
        measured=spec.x.startswith(MEASURE),
        joined=not spec.x.startswith(MEASURE) or spec.lines is not None,
    )
    return (rows if spec.x == ROW else sweep)(points, labels, heading)


def _heading(findings: Findings) -> Heading:
    """Return the title, which recipes ran with how many seeds, and how much of the study is still missing."""
    study, finished = findings.study, findings.finished()
    names = list(dict.fromkeys(cell.recipe for cell in findings.cells if findings.runs(cell)))
    least, most = (end(len(runs) for runs in finished) for end in (min, max))
    seeds = f"{least} seed{'s' if most > 1 else ''}" if least == most else f"{least} to {most} seeds"
    spread = "" if most == 1 else ", mean ± standard deviation"
    whole = len({cell.hash for cell in findings.cells})
    notes = [] if len(finished) == whole else [f"{len(finished)} of {whole} settings have finished runs"]
    whose = ", ".join(names) if len(names) <= NAMED else f"{len(names)} recipes"
    return Heading(study.title, f"{whose}; {seeds}{spread}", "; ".join([*notes, *_quoted(study)]))


def _quoted(study: Study) -> list[str]:
    """Return the numbers that a paper's text gives of the figure a study answers."""
    if study.answers is None:
        return []
    key, identifier = study.answers
    paper = papers.load(key)
    figure = paper.figures.get(identifier)
    if figure is None:
        return []
    numbers = [f"{q.what} {q.value:,g}" + (f" to {q.high:,g}" if q.high is not None else "") for q in figure.quoted]
    return [f"{paper.short}, Figure {figure.number}: {', '.join(numbers)}"] if numbers else []


def _named(score: str) -> str:
    """Return how an axis names a score."""
    return MEAN if score == AVERAGE else unit(score.rpartition(".")[2])


def _source(study: Study) -> str:
    """Return the table whose numbers are printed beside ours."""
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    return f"{paper.short}, {paper.tables[identifier].title}" if identifier in paper.tables else paper.short


APART = 0.12
"""Part of the axis between two of its labels, at least."""
LEVELS = (GREY, BLACK, PURPLE)
"""Colours of what has no place on the axis."""


def sweep(points: Sequence[Point], labels: Labels, heading: Heading) -> Figure:
    """Return ours and the paper's in one panel where their scores lie close, else below each other with equal spans.

    A second axis would let the choice of its scale decide how alike both look; with equal spans slopes can be compared.
    """
    drawn = sides(points, labels)
    spans = [side.span(points) for side in drawn]
    lines = list(dict.fromkeys(point.line for point in points if point.x is not None))
    shared = len(lines) == 1 and together(spans)
    panels = 1 if shared else len(drawn)
    figure = blank(heading, height=0.4 + (1.4 if panels > 1 else 1.8) * panels)
    every = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    for place, side in enumerate(drawn):
        axes = every[0 if shared else place]
        _lines(axes, points, lines, side, labels, named=shared and len(drawn) > 1)
        _levels(axes, points, side)
        if panels > 1:
            axes.set_title(side.name, loc="left", fontsize=7, parse_math=False)
            axes.set_ylim(same_span(spans)[place])
    _axes(figure, every, points, labels)
    legend(figure)
    return figure


def _lines(
    axes: Axes, points: Sequence[Point], lines: Sequence[str], side: Side, labels: Labels, *, named: bool
) -> None:
    """Draw each line and the deviations of its points; `named` puts the side's name into the legend."""
    for place, line in enumerate(lines):
        own = [(p.x, *number) for p in points if p.line == line and p.x is not None and (number := side.number(p))]
        if own:
            x, mean, std = zip(*sorted(own), strict=True)
            looks = dict(side.looks) if len(lines) == 1 else look(place)
            if not labels.joined:
                looks["linestyle"] = "none"
            bars: dict[str, Any] = {"yerr": std, "capsize": 2, "elinewidth": 0.8} if any(std) else {}
            axes.errorbar(x, mean, label=(side.name if named else line) or None, zorder=3, **looks, **bars)


def _levels(axes: Axes, points: Sequence[Point], side: Side) -> None:
    """Draw a level for each setting that has no place on the axis, such as one without the component."""
    for place, point in enumerate(point for point in points if point.x is None):
        if number := side.number(point):
            looks: dict[str, Any] = {"color": LEVELS[place % len(LEVELS)], "linewidth": 0.9, "zorder": 1}
            axes.axhline(number[0], label=point.label, linestyle=DASHES[1 + place % (len(DASHES) - 1)], **looks)
            if number[1]:
                across: dict[str, Any] = {
                    "transform": axes.get_yaxis_transform(),
                    "fmt": "none",
                    "capsize": 2,
                    "elinewidth": 0.8,
                }
                axes.errorbar([0.99 - 0.02 * place], [number[0]], yerr=[number[1]], ecolor=looks["color"], **across)


def _axes(figure: Figure, every: Sequence[Axes], points: Sequence[Point], labels: Labels) -> None:
    for axes in every:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.grid()
    lowest = every[-1]
    if labels.log_x:
        lowest.set_xscale("log")
        lowest.xaxis.set_minor_locator(NullLocator())
    if labels.measured:
        lowest.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if labels.log_x else MaxNLocator(6))
        lowest.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        ticks = _ticks([point.x for point in points if point.x is not None], log=labels.log_x)
        lowest.set_xticks(ticks, [f"{tick:g}".replace("e-0", "e-") for tick in ticks])
    lowest.set_xlabel(labels.x)
    figure.supylabel(labels.y, fontsize=7.5) if len(every) > 1 else lowest.set_ylabel(labels.y)


def _ticks(values: Sequence[float], *, log: bool) -> list[float]:
    """Return the values that stand far enough apart to be written below the axis."""
    placed = {value: log10(value) if log else value for value in sorted(values)}
    apart = APART * (max(placed.values()) - min(placed.values())) if placed else 0.0
    kept: list[float] = []
    for value, place in placed.items():
        if not kept or place - placed[kept[-1]] >= apart:
            kept.append(value)
    return kept


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


COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STEPS = [1, 2, 2.5, 5, 10]
"""Between ticks, times a power of ten."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), "-.")
SPARE = 0.12
"""Part of a range left free at both of its ends."""
ROOM = 2.0
"""Times the wider of two ranges that one axis may hold: beyond it, each gets a panel."""

HANDLE, LETTER = 0.4, 0.06
"""Inches of a legend's entry: beside its text, and for each letter of it."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Labels:
    """What a figure says beside its numbers.

    Args:
        x: Of the axis.
        y: Of the axis.
        ours: Whose our numbers are.
        paper: Where the printed ones stand.
        log_x: Logarithmic x axis.
        measured: Whether x was measured, not set.
        joined: Whether the points of a line are joined.
    """

    x: str
    y: str
    ours: str
    paper: str = ""
    log_x: bool = False
    measured: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Args:
        name: Above its panel, or in the legend.
        number: Point → mean and standard deviation, None where there is no number.
        looks: Of its points, where each side has but one line.
    """

    name: str
    number: Callable[[Point], tuple[float, float] | None]
    looks: dict[str, Any]

    def span(self, points: Sequence[Point]) -> Range:
        """Return what means and deviations reach."""
        found = [number for point in points if (number := self.number(point))]
        return min(mean - std for mean, std in found), max(mean + std for mean, std in found)


def sides(points: Sequence[Point], labels: Labels) -> list[Side]:
    """Return ours and, where anything is printed, the paper's."""
    ours = Side(labels.ours, lambda point: point.ours, {"color": OURS, "marker": "o", "linestyle": "-"})
    looks = {"color": PAPER, "marker": "s", "linestyle": (0, (4, 2)), "markerfacecolor": "white"}
    paper = Side(labels.paper, lambda point: None if point.printed is None else (point.printed, 0.0), looks)
    return [side for side in (ours, paper) if any(side.number(point) for point in points)]


def look(place: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line at a place; told apart in grey as well."""
    own = place % len(COLOURS)
    return {"color": COLOURS[own], "marker": MARKERS[own], "linestyle": DASHES[own]}


def together(ranges: Sequence[Range]) -> bool:
    """Tell whether one axis shows all ranges without pressing any flat."""
    widest = max(high - low for low, high in ranges)
    return max(high for _, high in ranges) - min(low for low, _ in ranges) <= ROOM * widest


def same_span(ranges: Sequence[Range]) -> list[Range]:
    """Return a range around each one, all of one length: a point more looks the same in every panel."""
    half = (max(high - low for low, high in ranges) or 1.0) * (0.5 + SPARE)
    return [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in ranges]


def legend(figure: Figure) -> None:
    """Write below everything what each line is, where lines have names; side by side where there is room."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
    if named:
        columns = max(1, int(figure.get_figwidth() / (HANDLE + LETTER * max(map(len, named)))))
        shown = figure.legend(named.values(), named, loc="outside lower center", ncols=min(columns, len(named)))
        for text in shown.get_texts():
            text.set_parse_math(False)


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
