"""Figure of `cse data inspect`: lengths, duplicates, evaluation sentences in the text, and hard negatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cse_cli.core.plotting import (
    CHOSEN,
    DOTS,
    MEASURED,
    PAGE,
    PAPER,
    Heading,
    as_svg,
    figure_style,
    label_axes,
    new_figure,
)
from cse_cli.inspection.facts import Inspection
from registry.errors import CseError
from registry.paths import expand_user

SUFFIXES = (".png", ".svg")

MOST_SETS = 8
"""Maximum number of evaluation sets in the figure."""

LONGEST = 0.999
"""Share of the rows inside the axis of lengths."""


def check_path(path: str) -> None:
    """Raise `CseError` if a figure cannot have this path."""
    if Path(path).suffix not in SUFFIXES:
        raise CseError(
            f"--figure {path}: the suffix is not {' or '.join(SUFFIXES)}",
            f"for example: --figure {Path(path).stem or 'text'}.png",
            code="inspection.unknown_figure",
        )
    if not expand_user(Path(path)).absolute().parent.is_dir():
        raise CseError(
            f"--figure {path}: the directory '{Path(path).parent}' does not exist",
            "create it, or use another directory",
            code="inspection.no_directory",
        )


def draw_inspection(inspection: Inspection, path: str) -> None:
    """Write the figure of an inspection to a .png or .svg file."""
    file = expand_user(Path(path))
    if file.suffix == ".svg":
        file.write_bytes(as_svg(lambda: inspection_figure(inspection)))
        return
    with figure_style():
        inspection_figure(inspection).savefig(file, dpi=DOTS, metadata={"Software": None})


def inspection_figure(inspection: Inspection) -> Any:
    """Return the figure: a panel for each kind of facts that the text has. Call it inside `figure_style`."""
    panels: list[Callable[[Any, Inspection], None]] = [_lengths, _copies]
    panels += [_leaks] if inspection.leaks else []
    panels += [_negatives] if inspection.negatives is not None else []
    lines = (len(panels) + 1) // 2
    heading = Heading(inspection.name, f"{inspection.rows:,} rows · settings of {inspection.settings}")
    figure = new_figure(heading, PAGE, 2.0 * lines)
    for place, draw in enumerate(panels, start=1):
        draw(figure.add_subplot(lines, 2, place), inspection)
    return figure


def _lengths(axes: Any, inspection: Inspection) -> None:
    one = inspection.lengths[inspection.anchor]
    total = 0
    shown: dict[int, int] = {}
    for tokens, rows in one.histogram.items():
        if total < LONGEST * one.rows:
            shown[tokens] = rows
        total += rows
    axes.bar(list(shown), list(shown.values()), width=1.0, color=MEASURED)
    axes.axvline(one.max_length + 0.5, color=CHOSEN, linestyle="--")
    axes.set_title(f"{one.cut_share:.1%} cut at {one.max_length} tokens")
    label_axes(axes, f"tokens of {inspection.tokenizer}", "rows", grid="y")


def _copies(axes: Any, inspection: Inspection) -> None:
    copies = inspection.duplicates.copies
    label_axes(axes, "rows with the same sentence", "sentences")
    axes.loglog(list(copies), list(copies.values()), color=MEASURED, marker="o", linestyle="none")
    axes.set_xlim(0.8, max(10, *copies) * 1.25)
    axes.set_ylim(0.8, max(10, *copies.values()) * 2)
    share = f"{inspection.batches_with_duplicates:.1%}"
    axes.set_title(f"{share} of batches of {inspection.batch_size} have a sentence twice")


def _leaks(axes: Any, inspection: Inspection) -> None:
    leaks = sorted(inspection.leaks, key=lambda leak: leak.share)[-MOST_SETS:]
    label_axes(axes, "% of the set's sentences", "", grid="x")
    axes.barh(range(len(leaks)), [100 * leak.share for leak in leaks], color=CHOSEN)
    axes.set_yticks(range(len(leaks)), [leak.name for leak in leaks])
    axes.set_title("evaluation sentences in the text")


def _negatives(axes: Any, inspection: Inspection) -> None:
    assert inspection.negatives is not None
    label_axes(axes, "word overlap with the anchor", "rows", grid="y")
    edges = [place / 10 for place in range(11)]
    kinds = zip(("positive", "negative"), inspection.negatives.overlaps, (MEASURED, PAPER), strict=True)
    for label, rows, color in kinds:
        axes.stairs(rows, edges, label=label, color=color)
    axes.set_title("hard negatives")
    axes.legend()
