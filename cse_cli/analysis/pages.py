"""What a report is made of, whatever it is written as. Every text is plain: escaping is the writers' work.

A report as one self-contained HTML page in the look of the leaderboard's: light, dark and in print.

A report as Markdown, as GitHub reads it; its figures lie in a folder beside it.
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape as html_escape
from importlib.resources import files
from urllib.parse import quote

from cse_cli import __version__
from cse_cli.analysis import leaderboard_formats as wording
from cse_cli.analysis import leaderboard_view as board
from cse_cli.analysis.leaderboard_formats import Line, Text, grid
from cse_cli.analysis.papers import Block


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Remarks:
    """A list of short texts.

    Args:
        texts: In order.
        small: Whether they only explain what stands above.
    """

    texts: tuple[str, ...]
    small: bool = True


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Text to be read by a machine.

    Args:
        language: "toml" or "console".
        folded: What stands in its place until it is opened; "" shows it at once.
    """

    text: str
    language: str
    folded: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        label: Before its cells.
        cells: One a heading.
        ours: Whether it is what the report is about.
        below: Whether it goes with the line above.
    """

    label: str
    cells: tuple[Text, ...]
    ours: bool = False
    below: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        caption: What it is, for those who hear the page.
        headings: Over the cells; the labels have none.
        rows: In order.
        notes: Told below by number.
        numbers: Whether the cells are numbers, else words.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    numbers: bool = True


@dataclass(frozen=True)
class Picture:
    """A figure.

    Args:
        name: Of its file, without ending.
        alt: What it shows.
        svg: The file.
    """

    name: str
    alt: str
    svg: bytes


Part = Words | Remarks | Facts | Code | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Page:
    """A report.

    Args:
        title: Of the run's recipe, or of the study.
        subtitle: Which run or study.
        sections: Those without parts are left out.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """Every figure, in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Picture)]


def plain_table(caption: str, headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table of words; the first of each row is its label."""
    lines = tuple(Row(label, tuple(map(Text, cells))) for label, *cells in rows)
    return Table(caption, tuple(headings), lines, numbers=False)


def of_block(block: Block) -> tuple[Part, ...]:
    """Return a leaderboard's table with its remarks and the legend of its marks."""
    shown = grid(block)
    table = Table(block.heading, shown.headings, tuple(map(_row, shown.lines)), shown.notes)
    told = (*wording.remarks(block), *wording.legend_lines([block], "bold"))
    return (table, Remarks(told)) if told else (table,)


def _row(line: Line) -> Row:
    return Row(line.label, line.cells, ours=line.source == "ours", below=line.below)


PAGE_TEMPLATE = "report.html"
COLUMN = 260.0
"""Points: no figure of one column is wider."""
SHOWN = 1.45
"""Pixels on the screen for a figure's point: three of one column stand side by side."""


def as_html(page: Page) -> str:
    """Return the page."""
    parts = {
        "title": html.escape(page.title),
        "subtitle": html.escape(page.subtitle),
        "version": html.escape(f"cse {__version__}"),
        "style": _style(),
        "sections": "\n".join(_html_section(section, number) for number, section in enumerate(page.sections, 1)),
    }
    text = files("cse_cli.analysis").joinpath(PAGE_TEMPLATE).read_text(encoding="utf-8")
    # All at once: what is put in may hold anything.
    return re.sub(r"<!-- (\w+) -->", lambda match: parts[match[1]], text)


def _style() -> str:
    """Return the style of the leaderboard's page."""
    text = files("cse_cli.analysis").joinpath(board.TEMPLATE).read_text(encoding="utf-8")
    return text.partition("<style>")[2].partition("</style>")[0].strip()


def _html_section(section: Section, number: int) -> str:
    groups = "\n".join(_group(section.parts))
    title = f'<h2 id="heading-{number}">{html.escape(section.title)}</h2>'
    return f'<section aria-labelledby="heading-{number}">\n{title}\n{groups}\n</section>'


def _group(parts: Sequence[Part]) -> list[str]:
    """Return parts one below the other, but figures that follow each other side by side."""
    found: list[str] = []
    for place, part in enumerate(parts):
        first = place == 0 or not isinstance(parts[place - 1], Picture)
        last = place + 1 == len(parts) or not isinstance(parts[place + 1], Picture)
        opening, closing = ('<div class="figures">', "</div>") if isinstance(part, Picture) else ("", "")
        found.append(f"{opening if first else ''}{_html_of(part)}{closing if last else ''}")
    return found


@singledispatch
def _html_of(part: Part) -> str:
    raise TypeError(type(part))


@_html_of.register
def _html_words(part: Words) -> str:
    return f"<p>{html.escape(part.text)}</p>"


@_html_of.register
def _html_remarks(part: Remarks) -> str:
    looks = "remarks" if part.small else "items"
    return f'<ul class="{looks}">{"".join(f"<li>{html.escape(text)}</li>" for text in part.texts)}</ul>'


@_html_of.register
def _html_facts(part: Facts) -> str:
    pairs = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in part.pairs)
    return f"<dl>{pairs}</dl>"


@_html_of.register
def _html_code(part: Code) -> str:
    text = f'<pre tabindex="0"><code class="language-{part.language}">{html.escape(part.text.rstrip())}</code></pre>'
    return f"<details><summary>{html.escape(part.folded)}</summary>{text}</details>" if part.folded else text


@_html_of.register
def _html_table(part: Table) -> str:
    kind = "number" if part.numbers else "words"
    headings = "".join(f'<th scope="col" class="{kind}">{html.escape(heading)}</th>' for heading in part.headings)
    rows = "\n".join(_html_row(row, kind) for row in part.rows)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in part.notes)
    caption = html.escape(part.caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">\n<table aria-label="{caption}">\n'
        f"<thead><tr><td></td>{headings}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
        + (f'\n<ol class="notes">{notes}</ol>' if notes else "")
    )


def _html_row(row: Row, kind: str) -> str:
    looks = " ".join([*(["ours"] if row.ours else []), *(["below"] if row.below else [])])
    cells = "".join(f'<td class="{kind}">{_html_cell(cell)}</td>' for cell in row.cells)
    return f'<tr class="{looks}"><th scope="row">{html.escape(row.label)}</th>{cells}</tr>'


def _html_cell(cell: Text) -> str:
    return f"<strong>{html.escape(cell.text)}</strong>" if cell.strong and cell.text else html.escape(cell.text)


@_html_of.register
def _picture(part: Picture) -> str:
    # An image, not elements of the page: figures use the same ids inside.
    found = re.search(rb'<svg[^>]*?\swidth="([\d.]+)pt"', part.svg)
    points = float(found[1]) if found else COLUMN
    looks = f'class="{"wide" if points > COLUMN else "column"}" style="width: {points * SHOWN:.0f}px"'
    source = f"data:image/svg+xml;base64,{b64encode(part.svg).decode('ascii')}"
    return f'<figure><img src="{source}" alt="{html.escape(part.alt)}" {looks}></figure>'


def markdown(page: Page, folder: str) -> str:
    """Return the text; `folder` is where its figures lie, as seen from it."""
    blocks = [f"# {escape_markdown(page.title)}", _line(page.subtitle)]
    for section in page.sections:
        blocks += _section(section, folder)
    return "\n\n".join([*blocks, f"Written by cse {__version__}."]) + "\n"


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line; for where a line does not begin with it."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # inside a word it is only a letter
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def _line(text: str) -> str:
    """Return text that Markdown shows as it is where a line begins with it, too."""
    return re.sub(r"^(\d+)(?=[.)](\s|$))", r"\1\\", re.sub(r"^(?=[#+=>-])", r"\\", escape_markdown(text)))


def _section(section: Section, folder: str) -> Iterable[str]:
    yield f"## {escape_markdown(section.title)}"
    for part in section.parts:
        yield (
            f"![{escape_markdown(part.alt)}]({quote(f'{folder}/{part.name}.svg')})"
            if isinstance(part, Picture)
            else _of(part)
        )


@singledispatch
def _of(part: Part) -> str:
    raise TypeError(type(part))


@_of.register
def _words(part: Words) -> str:
    return _line(part.text)


@_of.register
def _remarks(part: Remarks) -> str:
    return "\n".join(f"- {_line(text)}" for text in part.texts)


@_of.register
def _facts(part: Facts) -> str:
    return _grid(
        ["", ""], ["---", "---"], [[escape_markdown(name), escape_markdown(value)] for name, value in part.pairs]
    )


@_of.register
def _code(part: Code) -> str:
    longest = max(map(len, re.findall(r"`+", part.text)), default=0)
    fence = "`" * max(3, longest + 1)
    text = f"{fence}{part.language}\n{part.text.rstrip()}\n{fence}"
    if not part.folded:
        return text
    return f"<details>\n<summary>{html_escape(part.folded)}</summary>\n\n{text}\n\n</details>"


@_of.register
def _table(part: Table) -> str:
    rule = ["---", *(["---:" if part.numbers else "---"] * len(part.headings))]
    rows = [[_label(row), *(_cell(cell) for cell in row.cells)] for row in part.rows]
    notes = "  \n".join(f"\\[{number}\\] {escape_markdown(note)}" for number, note in enumerate(part.notes, 1))
    table = _grid(["", *map(escape_markdown, part.headings)], rule, rows)
    return f"{table}\n\n{notes}" if notes else table


def _label(row: Row) -> str:
    return f"&emsp;{escape_markdown(row.label)}" if row.below else escape_markdown(row.label)


def _cell(cell: Text) -> str:
    return f"**{escape_markdown(cell.text)}**" if cell.strong and cell.text else escape_markdown(cell.text)


def _grid(header: Sequence[str], rule: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
