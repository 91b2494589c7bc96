"""A report as Markdown, as GitHub reads it; its figures lie in a folder beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape as html_escape
from urllib.parse import quote

from cse_cli import __version__
from cse_cli.board.grid import Text
from cse_cli.report.parts import Code, Facts, Page, Part, Picture, Remarks, Row, Section, Table, Words


def markdown(page: Page, folder: str) -> str:
    """Return the text; `folder` is where its figures lie, as seen from it."""
    blocks = [f"# {escape(page.title)}", _line(page.subtitle)]
    for section in page.sections:
        blocks += _section(section, folder)
    return "\n\n".join([*blocks, f"Written by cse {__version__}."]) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line; for where a line does not begin with it."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # inside a word it is only a letter
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def _line(text: str) -> str:
    """Return text that Markdown shows as it is where a line begins with it, too."""
    return re.sub(r"^(\d+)(?=[.)](\s|$))", r"\1\\", re.sub(r"^(?=[#+=>-])", r"\\", escape(text)))


def _section(section: Section, folder: str) -> Iterable[str]:
    yield f"## {escape(section.title)}"
    for part in section.parts:
        yield f"![{escape(part.alt)}]({quote(f'{folder}/{part.name}.svg')})" if isinstance(part, Picture) else _of(part)


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
    return _grid(["", ""], ["---", "---"], [[escape(name), escape(value)] for name, value in part.pairs])


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
    notes = "  \n".join(f"\\[{number}\\] {escape(note)}" for number, note in enumerate(part.notes, 1))
    table = _grid(["", *map(escape, part.headings)], rule, rows)
    return f"{table}\n\n{notes}" if notes else table


def _label(row: Row) -> str:
    return f"&emsp;{escape(row.label)}" if row.below else escape(row.label)


def _cell(cell: Text) -> str:
    return f"**{escape(cell.text)}**" if cell.strong and cell.text else escape(cell.text)


def _grid(header: Sequence[str], rule: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
