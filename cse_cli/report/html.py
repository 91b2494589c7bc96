"""A report as one self-contained HTML page in the look of the leaderboard's: light, dark and in print."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import singledispatch
from html import escape
from importlib.resources import files

from cse_cli import __version__
from cse_cli.board import page as board
from cse_cli.board.grid import Text
from cse_cli.report.parts import Code, Facts, Page, Part, Picture, Remarks, Row, Section, Table, Words

TEMPLATE = "page.html"
COLUMN = 260.0
"""Points: no figure of one column is wider."""
SHOWN = 1.45
"""Pixels on the screen for a figure's point: three of one column stand side by side."""


def html(page: Page) -> str:
    """Return the page."""
    parts = {
        "title": escape(page.title),
        "subtitle": escape(page.subtitle),
        "version": escape(f"cse {__version__}"),
        "style": _style(),
        "sections": "\n".join(_section(section, number) for number, section in enumerate(page.sections, 1)),
    }
    text = files("cse_cli.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    # All at once: what is put in may hold anything.
    return re.sub(r"<!-- (\w+) -->", lambda match: parts[match[1]], text)


def _style() -> str:
    """Return the style of the leaderboard's page."""
    text = files("cse_cli.board").joinpath(board.TEMPLATE).read_text(encoding="utf-8")
    return text.partition("<style>")[2].partition("</style>")[0].strip()


def _section(section: Section, number: int) -> str:
    groups = "\n".join(_group(section.parts))
    title = f'<h2 id="heading-{number}">{escape(section.title)}</h2>'
    return f'<section aria-labelledby="heading-{number}">\n{title}\n{groups}\n</section>'


def _group(parts: Sequence[Part]) -> list[str]:
    """Return parts one below the other, but figures that follow each other side by side."""
    found: list[str] = []
    for place, part in enumerate(parts):
        first = place == 0 or not isinstance(parts[place - 1], Picture)
        last = place + 1 == len(parts) or not isinstance(parts[place + 1], Picture)
        opening, closing = ('<div class="figures">', "</div>") if isinstance(part, Picture) else ("", "")
        found.append(f"{opening if first else ''}{_of(part)}{closing if last else ''}")
    return found


@singledispatch
def _of(part: Part) -> str:
    raise TypeError(type(part))


@_of.register
def _words(part: Words) -> str:
    return f"<p>{escape(part.text)}</p>"


@_of.register
def _remarks(part: Remarks) -> str:
    looks = "remarks" if part.small else "items"
    return f'<ul class="{looks}">{"".join(f"<li>{escape(text)}</li>" for text in part.texts)}</ul>'


@_of.register
def _facts(part: Facts) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in part.pairs)
    return f"<dl>{pairs}</dl>"


@_of.register
def _code(part: Code) -> str:
    text = f'<pre tabindex="0"><code class="language-{part.language}">{escape(part.text.rstrip())}</code></pre>'
    return f"<details><summary>{escape(part.folded)}</summary>{text}</details>" if part.folded else text


@_of.register
def _table(part: Table) -> str:
    kind = "number" if part.numbers else "words"
    headings = "".join(f'<th scope="col" class="{kind}">{escape(heading)}</th>' for heading in part.headings)
    rows = "\n".join(_row(row, kind) for row in part.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in part.notes)
    caption = escape(part.caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">\n<table aria-label="{caption}">\n'
        f"<thead><tr><td></td>{headings}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
        + (f'\n<ol class="notes">{notes}</ol>' if notes else "")
    )


def _row(row: Row, kind: str) -> str:
    looks = " ".join([*(["ours"] if row.ours else []), *(["below"] if row.below else [])])
    cells = "".join(f'<td class="{kind}">{_cell(cell)}</td>' for cell in row.cells)
    return f'<tr class="{looks}"><th scope="row">{escape(row.label)}</th>{cells}</tr>'


def _cell(cell: Text) -> str:
    return f"<strong>{escape(cell.text)}</strong>" if cell.strong and cell.text else escape(cell.text)


@_of.register
def _picture(part: Picture) -> str:
    # An image, not elements of the page: figures use the same ids inside.
    found = re.search(rb'<svg[^>]*?\swidth="([\d.]+)pt"', part.svg)
    points = float(found[1]) if found else COLUMN
    looks = f'class="{"wide" if points > COLUMN else "column"}" style="width: {points * SHOWN:.0f}px"'
    source = f"data:image/svg+xml;base64,{b64encode(part.svg).decode('ascii')}"
    return f'<figure><img src="{source}" alt="{escape(part.alt)}" {looks}></figure>'
