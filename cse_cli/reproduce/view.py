"""Screen of a reproduction: scores, verdict, and the doubtful points with the options that change them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted
from cse_cli.core.tables import as_rich_parts
from cse_cli.reproduce.document import Reproduction
from cse_cli.reproduce.doubts import Doubt
from cse_cli.reproduce.report import explanation, headline, scores_table
from cse_cli.reproduce.verdict import Outcome

WIDTH = 80
OPTIONS_SHOWN = 3
"""Number of options that the screen shows for each doubtful point. The report has all of them."""
_COLORS: dict[Outcome, str] = {"reproduced": "green", "lower": "red", "higher": "yellow", "undecided": "yellow"}


def print_reproduction(document: Reproduction) -> None:
    """Print a reproduction on stdout, at most 80 columns wide except for commands."""
    reference, outcome = document.reference, document.verdict.outcome
    with stdout_console() as out:
        out.print(Text.assemble((reference.name, "bold"), f" · {document.recipe}"), soft_wrap=True)
        for part in as_rich_parts(scores_table(document), min(out.width, WIDTH), gap=1):
            out.print(part)
        out.print()
        _print(out, headline(document), f"bold {_COLORS[outcome]}")
        for line in explanation(document):
            _print(out, line)
        for line in _remarks(document):
            _print(out, line, indent=2 if line.startswith("- ") else 0)
        for doubt in _shown_doubts(document):
            _print(out, f"{doubt.point}  {doubt.text}", indent=2)
            for option in _options(doubt):
                out.print(Text(f"    {option}"), soft_wrap=True)  # a command does not wrap, so that you can copy it


def _remarks(document: Reproduction) -> Iterator[str]:
    """Yield early ends of seeds, doubts about the reported row, and the doubtful points of the method."""
    yield from (f"seed {seed.seed} {seed.note}" for seed in document.seeds if seed.note)
    if document.reference.notes:
        yield "\ndoubts about the reported row:"
        yield from (f"- {note}" for note in document.reference.notes)
    if document.doubts and not _shown_doubts(document):
        yield f"\n{counted(len(document.doubts), 'doubtful point')} of the method: see the report (--output report.md)"
    elif document.doubts:
        yield "\ndoubtful points of the method, and options that choose otherwise:"


def _shown_doubts(document: Reproduction) -> tuple[Doubt, ...]:
    """Return the doubtful points if they may explain a difference."""
    return document.doubts if document.verdict.outcome in ("lower", "higher") else ()


def _options(doubt: Doubt) -> Iterator[str]:
    """Yield the first options of a doubtful point, or the settings that decide it."""
    yield from doubt.options[:OPTIONS_SHOWN]
    if len(doubt.options) > OPTIONS_SHOWN:
        yield f"and {len(doubt.options) - OPTIONS_SHOWN} more in the report"
    if not doubt.options:
        yield f"setting: {'; '.join(doubt.settings)}"


def _print(out: Console, text: str, style: str = "", indent: int = 0) -> None:
    before = text[: len(text) - len(text.lstrip("\n"))]
    lines = textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    out.print(Text(f"{before}{lines.lstrip()}", style), soft_wrap=True)
