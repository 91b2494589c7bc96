"""Table and figure of `cse adapt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matplotlib.figure import Figure

from cse_cli.adapt.judge import Difference
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import interval, signed
from cse_cli.core.plotting import BLUE, GUIDE, PAGE, Heading, label_axes, new_figure
from cse_cli.core.tables import as_rich, plain_table

MEASURES = {
    "queries": "words of a document find it",
    "titles": "a title finds its document",
    "labels": "texts with the same label find each other",
    "judge": "--judge",
    "kept": "stsb_open",
}
"""Evaluator of the verdict → what it measures, in the order of the table."""


def draw(found: Mapping[str, Difference], what: str) -> Iterator[tuple[str, Figure]]:
    """Yield the figure "verdict": the differences with their intervals."""
    names = [name for name in reversed(MEASURES) if name in found]
    heading = Heading(f"{what}: difference from the unchanged model", "mean and 95 % interval over documents and seeds")
    figure = new_figure(heading, PAGE, 0.5 + 0.3 * len(names))
    axes = figure.add_subplot()
    axes.axvline(0, **GUIDE)
    for place, one in enumerate(found[name] for name in names):
        axes.plot([one.low, one.high], [place, place], color=BLUE, marker="none")
        axes.plot(one.value, place, "o", color=BLUE)
    label_axes(axes, "points", "", grid="x")
    axes.set_yticks(range(len(names)), [MEASURES[name] for name in names])
    axes.set_ylim(-0.5, len(names) - 0.5)
    yield "verdict", figure


def print_answer(
    dev: Mapping[str, Mapping[str, Difference]],
    found: Mapping[str, Difference],
    words: Mapping[str, float],
    sentence: str,
) -> None:
    """Print the race, the differences on test documents, and the verdict."""
    race = [
        (row, *(f"{of[name].before + of[name].value:.2f}" for name in ("dev", "kept_dev"))) for row, of in dev.items()
    ]
    judged = [
        (what, f"{words[name]:.1f}" if name in words else "", f"{one.before:.1f}", signed(one.value),
         interval(one.low, one.high))
        for name, what in MEASURES.items() if (one := found.get(name))
    ]  # fmt: skip
    with stdout_console() as out:
        out.print(as_rich(plain_table(("dev documents", "queries", "stsb_open"), race, align="lrr")))
        if judged:
            headings = ("test documents", "BM25", "unchanged", "difference", "95 % interval")
            out.print()
            out.print(as_rich(plain_table(headings, judged, align="lrrrr")))
        out.print()
        out.print(sentence, soft_wrap=True, style="bold")
        if not {"titles", "labels", "judge"} & found.keys():
            out.print("This is about search. For topics, it needs labels: --judge.", soft_wrap=True)
