"""Pages: what a report is made of, written as Markdown or as one self-contained HTML page.

Every text is plain: escaping is the writers' work.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from cse_cli import __version__
from cse_cli.core import tables
from cse_cli.core.tables import Table, as_markdown, escape_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Remarks:
    """A list of short texts; `small` where they only explain what stands above."""

    texts: tuple[str, ...]
    small: bool = True


@dataclass(frozen=True)
class Facts:
    """Names with their values; empty values are left out."""

    values: dict[str, str]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Those that have a value."""
        return [(name, value) for name, value in self.values.items() if value]


@dataclass(frozen=True)
class Code:
    """Text to be read by a machine.

    Args:
        text: What it is.
        language: "toml", "console" or "text".
        folded: What stands in its place until it is opened; "" shows it at once.
    """

    text: str
    language: str
    folded: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure: name of its file without ending, what it shows, the SVG file."""

    name: str
    alt: str
    svg: bytes

    @property
    def address(self) -> str:
        """The file as an address: as an image it shares no ids with other figures of the page."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg).decode('ascii')}"

    @property
    def points(self) -> float:
        """Its width, that of one column where it is not known."""
        found = re.search(rb'<svg[^>]*?\swidth="([\d.]+)pt"', self.svg)
        return float(found[1]) if found else COLUMN


Part = Words | Remarks | Facts | Code | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    parts: tuple[Part, ...]

    @property
    def groups(self) -> list[list[Part]]:
        """The parts, figures that follow each other together: they stand side by side."""
        numbered = groupby(enumerate(self.parts), lambda part: -1 if isinstance(part[1], Picture) else part[0])
        return [[part for _, part in group] for _, group in numbered]


@dataclass(frozen=True)
class Page:
    """A report: title, which run or study it is about, sections."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """Every figure, in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Picture)]


def word_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of words; the first of each row is its label, which has no heading."""
    return tables.plain_table(["", *headings], rows, caption=caption)


def pictures(name: str, alt: str, draw: Callable[[], Figure | None]) -> tuple[Picture, ...]:
    """Return a figure that is drawn now, if there is anything to draw."""
    from cse_cli.core.plotting import house_style, save

    with TemporaryDirectory() as folder, house_style():
        figure = draw()
        files = [] if figure is None else save(figure, Path(folder) / name)
        return tuple(Picture(name, alt, path.read_bytes()) for path in files if path.suffix == ".svg")


COLUMN = 260.0
"""Points: no figure of one column is wider."""


def html(page: Page) -> str:
    """Return a report as one self-contained page: light, dark and in print."""
    return render("report.html.j2", page=page, column=COLUMN)


def render(template: str, **values: object) -> str:
    """Return a page of `cse_cli/analysis/templates`."""
    return _environment().get_template(template).render(version=__version__, **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("cse_cli.analysis"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters["kind"] = lambda part: type(part).__name__
    return made


def markdown(page: Page, folder: str) -> str:
    """Return the text as GitHub reads it; `folder` is where its figures lie, as seen from it."""
    blocks = [f"# {escape_markdown(page.title)}", _line(page.subtitle)]
    for section in page.sections:
        blocks += [f"## {escape_markdown(section.title)}", *(_markdown(part, folder) for part in section.parts)]
    return "\n\n".join([*blocks, f"Written by cse {__version__}."]) + "\n"


def _line(text: str) -> str:
    """Return text that Markdown shows as it is where a line begins with it, too."""
    return re.sub(r"^(\d+)(?=[.)](\s|$))", r"\1\\", re.sub(r"^(?=[#+=>-])", r"\\", escape_markdown(text)))


def _markdown(part: Part, folder: str) -> str:
    match part:
        case Words():
            return _line(part.text)
        case Remarks():
            return "\n".join(f"- {_line(text)}" for text in part.texts)
        case Facts():
            return as_markdown(word_table("", [""], part.pairs))
        case Code():
            return _markdown_code(part)
        case Table():
            return as_markdown(part)
        case Picture():
            return f"![{escape_markdown(part.alt)}]({quote(f'{folder}/{part.name}.svg')})"


def _markdown_code(part: Code) -> str:
    longest = max(map(len, re.findall(r"`+", part.text)), default=0)
    fence = "`" * max(3, longest + 1)
    text = f"{fence}{part.language}\n{part.text.rstrip()}\n{fence}"
    return f"<details>\n<summary>{escape(part.folded)}</summary>\n\n{text}\n\n</details>" if part.folded else text
