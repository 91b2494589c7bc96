"""The leaderboard on a terminal, and every other way to write it.

The leaderboard as one self-contained page: sortable, works offline, light and dark.
"""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli import __version__
from cse_cli.analysis import leaderboard_formats as formats
from cse_cli.analysis import leaderboard_formats as wording
from cse_cli.analysis.leaderboard_formats import Grid, Line, grid
from cse_cli.analysis.papers import Block, Row
from cse_cli.core.stats import LEGEND, Score
from registry.errors import CseError

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
    for line in wording.legend_lines(blocks, "bold" if terminal else ""):
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


TEMPLATE = "leaderboard.html"
PLACES = {"tables": "<!-- tables -->", "legend": "<!-- legend -->", "version": "<!-- version -->"}
SOURCES = {
    "paper": "paper",
    "ours": "ours",
    "untrained": "untrained",
    "reproduction": "run again by others",
    "field": "field",
}
"""What a row's first column says."""


def write(blocks: Sequence[Block], path: Path) -> None:
    """Write the page; a file that is there already is replaced as a whole.

    Raises:
        CseError: It cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(page(blocks), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise CseError(
            f"--html: '{path}' cannot be written: {error.strerror}", "name a file in a folder that exists"
        ) from error


def page(blocks: Sequence[Block]) -> str:
    """Return the page."""
    parts = {
        "tables": "\n".join(_page_table(block, number) for number, block in enumerate(blocks, 1)) or EMPTY,
        "legend": "\n".join(f"<li>{html.escape(line)}</li>" for line in wording.legend_lines(blocks, "bold")),
        "version": html.escape(f"cse {__version__}"),
    }
    text = files("cse_cli.analysis").joinpath(TEMPLATE).read_text(encoding="utf-8")
    head, *rest = text.split(PLACES["tables"])  # once: what is put in may hold anything
    tail = PLACES["tables"].join(rest)
    for part in ("legend", "version"):
        tail = tail.replace(PLACES[part], parts[part])
    return head + parts["tables"] + tail


EMPTY = "<p>No finished run matches. <code>cse run quickstart</code> makes one in about two minutes.</p>"


def _page_table(block: Block, number: int) -> str:
    notes = list(dict.fromkeys(note for row in block.rows for note in row.notes))
    headings = "".join(_heading(text, column) for column, text in enumerate(["", "", "n", *block.columns]))
    rows = "\n".join(_row(row, place, block, notes, number) for place, row in enumerate(block.rows))
    told = "".join(f'<li id="note-{number}-{n}">{html.escape(note)}</li>' for n, note in enumerate(notes, 1))
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in wording.remarks(block))
    return (
        f'<section aria-labelledby="heading-{number}">\n<h2 id="heading-{number}">{html.escape(block.heading)}</h2>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="heading-{number}">\n'
        f'<table aria-labelledby="heading-{number}">\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}\n'
        "</tbody>\n</table>\n</div>\n"
        + (f'<ul class="remarks">{remarks}</ul>\n' if remarks else "")
        + (f'<ol class="notes">{told}</ol>\n' if told else "")
        + "</section>"
    )


def _heading(text: str, column: int) -> str:
    shown = {0: "row", 1: "of"}.get(column, text)
    kind = "text" if column < 2 else "number"
    return (
        f'<th scope="col" class="{kind}"><button type="button" data-kind="{kind}">{html.escape(shown)}'
        '<span class="arrow" aria-hidden="true"></span></button></th>'
    )


def _row(row: Row, place: int, block: Block, notes: Sequence[str], number: int) -> str:
    numbers = [notes.index(note) + 1 for note in row.notes]
    marks = ", ".join(f'<a href="#note-{number}-{n}" aria-label="note {n}">{n}</a>' for n in numbers)
    name, of = html.escape(_name(row, block)), html.escape(_of(row, block))
    seeds = len(row.seeds) or max((score.n for score in row.scores.values() if row.source == "reproduction"), default=0)
    cells = "".join(_cell(row.scores.get(column), row) for column in block.columns)
    return (
        f'<tr class="{row.source}" data-place="{place}"><th scope="row" data-value="{name}">{name}'
        f"{f' <sup>{marks}</sup>' if marks else ''}</th>"
        f'<td class="text" data-value="{of}">{of}</td>'
        f'<td class="number" data-value="{seeds or ""}">{seeds or ""}</td>{cells}</tr>'
    )


def _of(row: Row, block: Block) -> str:
    """Return whose a row is, and of ours what it is compared with."""
    if row.source == "paper" and block.kind == "encoder":
        return ", ".join(row.printed)
    differs = row.source == "ours" and any(score.difference is not None for score in row.scores.values())
    return f"{SOURCES[row.source]}, compared {wording.compared(row)}" if differs else SOURCES[row.source]


def _name(row: Row, block: Block) -> str:
    """Return a row's label; where sorting parts it from the printed row above it, with that row's name."""
    label = wording.row_label(row, block, places=False)
    return f"{row.answers} · {label}" if row.source == "ours" and block.kind != "encoder" else label


def _cell(score: Score | None, row: Row) -> str:
    if score is None:
        return '<td class="number" data-value=""></td>'
    lines = "".join(_lines(score, row))
    told = "; ".join(LEGEND[mark] for mark in score.marks)
    title = f' title="{html.escape(told)}"' if told else ""
    return f'<td class="number" data-value="{score.mean!r}"{title}>{lines}</td>'


def _lines(score: Score, row: Row) -> Iterator[str]:
    """Yield number, spread and difference; strong only where the difference is significant."""
    yield f"<span>{html.escape(wording.mean(score))}</span>"
    if score.std is not None and row.source != "untrained":
        yield f'<span class="small">± {score.std:.{score.digits}f}</span>'
    if score.implied is not None:
        yield f'<span class="small">meant: {score.implied:g}</span>'
    if score.low is not None and score.high is not None:
        yield f'<span class="small">{score.low:g} to {score.high:g}</span>'
    if score.difference is not None:
        tag = "strong" if score.significant else "span"
        about = html.escape(wording.compared(row))
        yield f'<{tag} class="small difference" aria-label="{_spoken(score)} {about}">'
        yield f"{html.escape(wording.difference(score))}</{tag}>"


def _spoken(score: Score) -> str:
    """Return a difference for those who hear the page: its mark by name."""
    marks = [mark for mark in score.marks if mark in wording.POSITIONS]
    return ", ".join([f"{score.difference:+.{score.digits}f}", *marks])
