"""Style and files of all figures: readable in print and by color-blind readers, and the same bytes every time."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

# Palette of Okabe and Ito: distinct for color-blind readers. Markers and hatches differ in gray, too.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GRAY = "#0072B2", "#D55E00", "#CC79A7", "#767676"
MEASURED, PAPER, UNTRAINED, CHOSEN = BLUE, ORANGE, GRAY, VERMILLION
"""Color of each role in every figure."""
COLORS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), "-.")
GUIDE: dict[str, Any] = {"color": UNTRAINED, "linestyle": (0, (4, 2)), "marker": "none", "zorder": 1}
"""Style of the line at the score before training."""

COLUMN, PAGE = 3.3, 6.6
"""Width of one column and of both columns of a page, in inches."""
SMALL = 6.5
"""Size of the smallest text, in points."""
LINE = 0.145
"""Height of one line of a heading, in inches."""
DOTS = 300
"""Resolution of PNG files, in dots per inch."""
DOTS_IN_SVG = 200
"""Resolution of images inside SVG files, in dots per inch."""
HANDLE, LETTER = 0.4, 0.06
"""Width of a legend's handle and of one letter, in inches."""
STEPS = [1, 2, 2.5, 5, 10]
"""Distances between ticks, times a power of ten."""

_STYLE = Path(__file__).with_name("cse.mplstyle")
_CHINESE = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "PingFang SC", "Microsoft YaHei", "SimHei")
_TITLE: dict[str, Any] = {"fontsize": 8, "fontweight": "bold"}
_SUBTITLE: dict[str, Any] = {"fontsize": 7, "color": "#444444"}
_METRICS = {"spearman": "Spearman × 100", "pearson": "Pearson × 100", "avg": "mean Spearman × 100"}


@dataclass(frozen=True)
class Heading:
    """Heading of a figure: metric, data set and split, then method and seed, then numbers."""

    title: str
    subtitle: str = ""
    note: str = ""


def metric_name(metric: str) -> str:
    """Return the name of a metric for an axis."""
    return _METRICS.get(metric, metric.replace("_", " "))


def score_name(score: str) -> str:
    """Return the name of an "evaluator.metric", or of "avg", for an axis. Empty for an empty score."""
    return metric_name(score.rpartition(".")[2])


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw and save in the style of this project inside the block, independent of the caller's settings."""
    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _CHINESE if name in installed)]
    with mpl.style.context(["default", _STYLE, {"font.family": fonts}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(heading: Heading, width: float = COLUMN, height: float = 2.0) -> Figure:
    """Return an empty figure below its heading. Sizes are in inches, the height without the heading."""
    parts = ((heading.title, _TITLE, 15), (heading.subtitle, _SUBTITLE, 17), (heading.note, _SUBTITLE, 17))
    lines = [(line, looks) for text, looks, an_inch in parts for line in textwrap.wrap(text, int(width * an_inch))]
    whole = height + LINE * len(lines)
    figure = Figure(figsize=(width, whole))
    FigureCanvasAgg(figure)
    for place, (line, looks) in enumerate(lines):
        figure.text(0.03 / width, 1 - (0.03 + LINE * place) / whole, line, va="top", parse_math=False, **looks)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, 0, 1, height / whole)))
    return figure


def line_style(place: int) -> dict[str, Any]:
    """Return color, marker and dashes of the line at this position, distinct in gray as well."""
    own = place % len(COLORS)
    return {"color": COLORS[own], "marker": MARKERS[own], "linestyle": DASHES[own]}


def label_axes(axes: Axes, xlabel: str, ylabel: str, grid: str = "both") -> None:
    """Set labels, a few ticks and grid lines."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.grid(axis=grid)  # type: ignore[arg-type]
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def label_steps(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Set labels, ticks and grid lines of a plot by training step."""
    label_axes(axes, xlabel, ylabel, grid="y")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(0, None)
    axes.margins(y=0.1)


def add_legend(figure: Figure) -> None:
    """Add one legend of all labeled lines below the figure, in as many columns as fit."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
    if named:
        columns = max(1, int(figure.get_figwidth() / (HANDLE + LETTER * max(map(len, named)))))
        legend = figure.legend(named.values(), named, loc="outside lower center", ncols=min(columns, len(named)))
        for text in legend.get_texts():
            text.set_parse_math(False)


def as_svg(draw: Callable[[], Figure | None]) -> bytes:
    """Draw a figure and return it as SVG without date and version. Empty if there is nothing to draw."""
    with figure_style():
        figure = draw()
        return b"" if figure is None else _svg(figure)


def save_figures(figures: Iterable[tuple[str, Figure]], directory: Path) -> list[Path]:
    """Write figures as NAME.svg and NAME.png and return the files. The same figure always gives the same bytes.

    The figures are drawn in the style of this project. The directory is created if there is a figure.
    """
    files: list[Path] = []
    with figure_style():
        for name, figure in figures:
            directory.mkdir(parents=True, exist_ok=True)
            svg, png = (directory / f"{name}{suffix}" for suffix in (".svg", ".png"))
            svg.write_bytes(_svg(figure))
            FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
            files += [svg, png]
    return files


def _svg(figure: Figure) -> bytes:
    """Return a figure as SVG and keep its layout for the PNG. `savefig` would draw everything once more."""
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    drawn = io.StringIO()
    figure.dpi = DOTS_IN_SVG
    about = dict.fromkeys(("Date", "Creator", "Type", "Format"))
    FigureCanvasSVG(figure).print_svg(drawn, metadata=about)  # type: ignore[no-untyped-call]
    figure.dpi = DOTS
    return re.sub(r"\n\s+", "\n", drawn.getvalue()).encode()  # indentation is a tenth of the file
