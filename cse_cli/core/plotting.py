"""The style of every figure: one column wide, readable in print and by the colour-blind, the same bytes every time."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Okabe and Ito's palette, distinct for every common kind of colour vision; in grey, by markers and hatches.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"

OURS, PAPER, UNTRAINED, CHOSEN = BLUE, ORANGE, GREY, VERMILLION
"""What each colour stands for, in every figure."""

COLUMN = 3.3
"""Inches: the width of one column of a two-column page, to be printed at its own size."""
PAGE = 6.6
"""Inches: both columns."""
SMALL = 6.5
"""Points: the smallest text."""
LINE = 0.145
"""Inches between the lines of a heading."""
DOTS = 300
"""Dots an inch in PNG files."""
DOTS_IN_SVG = 200
"""Dots an inch of what is an image in an SVG file: points too many to be paths."""

_CHINESE = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "PingFang SC", "Microsoft YaHei", "SimHei")
_TITLE: dict[str, Any] = {"fontsize": 8, "fontweight": "bold"}
_SUBTITLE: dict[str, Any] = {"fontsize": 7, "color": "#444444"}
_STYLE: dict[str, Any] = {
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "svg.fonttype": "path",  # a page shows the same letters whatever fonts its reader has
    "svg.hashsalt": "cse",  # else the ids inside an SVG are drawn by chance
    "savefig.dpi": DOTS,
    "figure.dpi": DOTS,
}


@dataclass(frozen=True)
class Heading:
    """The heading of a figure.

    Args:
        title: What is shown: metric, data set and split.
        subtitle: Whose it is: method and seed.
        note: Numbers that belong to it. Above it, because no place inside is free in every figure.
    """

    title: str
    subtitle: str = ""
    note: str = ""


@contextmanager
def house_style() -> Iterator[None]:
    """Draw and save in this project's style inside the block; the caller's own settings are back after it."""
    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _CHINESE if name in installed)]
    # The defaults first: whatever the caller has set, the figures are the same.
    own: dict[Any, Any] = {**mpl.rcParamsDefault, **_STYLE, "font.family": fonts}
    with mpl.rc_context(own), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(heading: Heading, width: float = COLUMN, height: float = 2.0) -> Figure:
    """Return an empty figure under its heading; no display, no state outside it.

    Args:
        heading: Above it.
        width: Inches.
        height: Inches, without the heading.
    """
    parts = ((heading.title, _TITLE, 15), (heading.subtitle, _SUBTITLE, 17), (heading.note, _SUBTITLE, 17))
    lines = [(line, looks) for text, looks, an_inch in parts for line in textwrap.wrap(text, int(width * an_inch))]
    whole = height + LINE * len(lines)
    figure = Figure(figsize=(width, whole))
    FigureCanvasAgg(figure)
    for place, (line, looks) in enumerate(lines):
        figure.text(0.03 / width, 1 - (0.03 + LINE * place) / whole, line, va="top", parse_math=False, **looks)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, 0, 1, height / whole)))
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.svg and `stem`.png without date or version: equal figures are equal files."""
    svg, png = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".svg", ".png"))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what the layout has found holds for both files
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", dpi=DOTS_IN_SVG, metadata=dict.fromkeys(("Date", "Creator", "Type", "Format")))
    svg.write_text(re.sub(r"\n\s+", "\n", drawn.getvalue()), encoding="utf-8")  # indentation is a tenth of it
    figure.savefig(png, metadata={"Software": None})
    return [svg, png]
