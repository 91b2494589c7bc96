"""The leaderboard on a terminal, and every other way to write it."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.board import formats, wording
from cse_cli.board.grid import Grid, Line, grid
from cse_cli.board.shape import Block

_STYLES = {"ours": "cyan", "untrained": "dim", "reproduction": "magenta", "field": "dim"}

WIDE = 110
"""Columns a terminal needs to have room for where each row is printed."""


def as_table(blocks: Sequence[Block]) -> str:
    """Return tables for a terminal; plain, wide and unwrapped where stdout is none."""
    terminal = sys.stdout.isatty()
    text = io.StringIO()
    width = shutil.get_terminal_size().columns if terminal else 10_000
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    for block in blocks:
        shown = grid(block, places=width >= WIDE)
        console.print(f"[bold]{escape(block.heading)}[/bold]\n")
        console.print(_table(shown))
        for number, note in enumerate(shown.notes, 1):
            console.print(escape(f"[{number}] {note}"))
        for remark in wording.remarks(block):
            console.print(escape(remark))
        console.print()
    for line in wording.legend(blocks, "bold" if terminal else ""):
        console.print(escape(line))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n"))


def _table(shown: Grid) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0))
    table.add_column("", overflow="fold", min_width=12)
    for heading in shown.headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for line in shown.lines:
        table.add_row(*_cells(line), style=_STYLES.get(line.source))
    return table


def _cells(line: Line) -> list[str]:
    label = f"{'  ' if line.below else ''}{escape(line.label)}"
    return [label, *(f"[bold]{cell.text}[/bold]" if cell.strong else cell.text for cell in line.cells)]


FORMATS: dict[str, Callable[[Sequence[Block]], str]] = {
    "table": as_table,
    "md": formats.as_markdown,
    "csv": formats.as_csv,
    "json": formats.as_json,
    "latex": formats.as_latex,
}
