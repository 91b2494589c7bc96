"""What a report is made of, whatever it is written as. Every text is plain: escaping is the writers' work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.board import wording
from cse_cli.board.grid import Line, Text, grid
from cse_cli.board.shape import Block


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
    told = (*wording.remarks(block), *wording.legend([block], "bold"))
    return (table, Remarks(told)) if told else (table,)


def _row(line: Line) -> Row:
    return Row(line.label, line.cells, ours=line.source == "ours", below=line.below)
