"""Reports as Markdown from the templates of this directory, and Markdown as an HTML page.

The values of a template are plain text, escaped here.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt

from cse_cli._version import __version__
from cse_cli.core.formatting import counted, date_and_time, distinct, duration, seed_list
from cse_cli.core.tables import Table, as_markdown, escape_markdown, plain_table
from registry.paths import write_atomically

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


@dataclass(frozen=True)
class SavedFigure:
    """A figure of a report: file name without suffix, description for readers who do not see it, contents."""

    name: str
    alt: str
    svg: bytes = field(repr=False)


@dataclass(frozen=True)
class Report:
    """Title, Markdown template and its values, and every figure that it shows."""

    title: str
    template: str
    values: Mapping[str, Any]
    figures: Sequence[SavedFigure] = ()


def write_pages(report: Report, path: Path) -> None:
    """Write a report as one HTML file, or as a Markdown file with a directory of figures next to it."""
    if path.suffix.lower() in HTML:
        write_atomically(path, html(report))
        return
    directory = figures_directory(path)
    for figure in report.figures:
        write_atomically(directory / f"{figure.name}.svg", figure.svg)
    write_atomically(path, markdown(report, directory.name))


def figures_directory(path: Path) -> Path:
    """Return the directory for the figures of a Markdown report."""
    return path.with_name(f"{path.stem}_figures")


def html(report: Report) -> str:
    """Return a report as one HTML page that loads no other file."""
    text = page(report.title, markdown(report, "figures"))
    for figure in report.figures:
        data = f"data:image/svg+xml;base64,{b64encode(figure.svg).decode('ascii')}"
        text = text.replace(f'src="{_address("figures", figure)}"', f'src="{data}"')
    return text


def page(title: str, text: str) -> str:
    """Return Markdown as one HTML page."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return _environment(autoescape=True).get_template("page.html.j2").render(title=title, body=body)


def markdown(report: Report, directory: str) -> str:
    """Return a report as GitHub Markdown, with the figures in `directory`."""
    environment = _environment(autoescape=False, finalize=lambda value: _as_markdown(value, directory))
    functions = (counted, date_and_time, distinct, duration, seed_list)
    environment.globals |= {"code": _code, **{function.__name__: function for function in functions}}
    return environment.get_template(report.template).render(version=__version__, **report.values)


def _environment(**options: Any) -> Environment:
    return Environment(  # nosec B701  # HTML has autoescape=True, and `_as_markdown` escapes every value of Markdown
        loader=PackageLoader("cse_cli.analysis"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, **options,
    )  # fmt: skip


class _Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def _as_markdown(value: Any, directory: str) -> str:
    """Return a template's value as Markdown: a table, a figure, a list, a table of properties, or text."""
    match value:
        case _Markdown():
            return value
        case Table():
            return as_markdown(value)
        case SavedFigure():
            return f"![{escape_markdown(value.alt)}]({_address(directory, value)})"
        case Mapping():
            return as_markdown(plain_table(["", ""], [(name, str(of)) for name, of in value.items() if of]))
        case list() | tuple():
            return "\n".join(f"- {_line(text)}" for text in value)
        case _:
            return _line(str(value))


def _address(directory: str, figure: SavedFigure) -> str:
    return quote(f"{directory}/{figure.name}.svg")


def _line(text: str) -> str:
    """Escape text that may be at the beginning of a line."""
    return re.sub(r"^(\d+)(?=[.)](\s|$))", r"\1\\", re.sub(r"^(?=[#+=>-])", r"\\", escape_markdown(text)))


def _code(text: str, language: str, folded: str = "") -> _Markdown:
    """Return a code block, folded below a summary if there is one."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    block = f"{fence}{language}\n{text.rstrip()}\n{fence}"
    if folded:
        block = f"<details>\n<summary>{escape(folded)}</summary>\n\n{block}\n\n</details>"
    return _Markdown(block)
