"""A table as headings and lines of short texts: what terminal, Markdown and LaTeX have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cse_cli.board import wording
from cse_cli.board.shape import Block, Row, Source
from cse_cli.spread import Score

BESIDE = 3
"""Most columns of a table whose rows show paper and ours side by side."""


@dataclass(frozen=True)
class Text:
    """One cell; strong only where a difference is significant."""

    text: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        label: Before its cells.
        cells: One a heading.
        source: Of the row it belongs to.
        below: Whether it goes with the line above.
    """

    label: str
    cells: tuple[Text, ...]
    source: Source
    below: bool = False


@dataclass(frozen=True)
class Grid:
    """One table.

    Args:
        headings: Over the cells.
        lines: In order.
        notes: Told below by number.
    """

    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def grid(block: Block, *, places: bool = True) -> Grid:
    """Return a table's lines: a study's short table has ours beside the paper's column, others have ours below.

    Args:
        block: The table.
        places: Say of each printed row where it is printed.
    """
    notes = tuple(dict.fromkeys(note for row in block.rows for note in row.notes))
    if block.kind == "study" and len(block.columns) <= BESIDE:
        return _beside(block, notes)
    lines = [line for row in block.rows for line in _stacked(row, block, notes, places)]
    return Grid(("n", *block.columns), tuple(lines), notes)


def _stacked(row: Row, block: Block, notes: tuple[str, ...], places: bool) -> Iterator[Line]:
    """Yield the cells of a row, of its spread and of its differences: short ones, so that a table stays narrow."""
    scores = [row.scores.get(column) for column in block.columns]
    label = wording.label(row, block, places=places) + _numbers(row, notes)
    yield Line(label, (Text(_n(row)), *(Text(wording.mean(s) if s else "") for s in scores)), row.source)
    if row.source != "untrained" and any(s and s.std is not None for s in scores):
        yield Line("±", (Text(), *(Text(_std(s)) for s in scores)), row.source, below=True)
    if any(s and s.difference is not None for s in scores):
        differences = (Text(wording.difference(s), s.significant) if s else Text() for s in scores)
        yield Line(wording.compared(row), (Text(), *differences), row.source, below=True)


def _n(row: Row) -> str:
    if row.source == "reproduction":
        return str(max((score.n for score in row.scores.values()), default=""))
    return str(len(row.seeds) or "")


def _numbers(row: Row, notes: tuple[str, ...]) -> str:
    return "".join(f" [{notes.index(note) + 1}]" for note in row.notes)


def _std(score: Score | None) -> str:
    return f"{score.std:.{score.digits}f}" if score and score.std is not None else ""


def _beside(block: Block, notes: tuple[str, ...]) -> Grid:
    """Return one line a printed row: the paper's cell, ours, spread, seeds and difference, of each column."""
    own = {row.name: row for row in block.rows if row.source == "ours"}
    printed = [row for row in block.rows if row.source == "paper"]
    headings = [heading for column in block.columns for heading in (column, "ours", "±", "n", "difference")]
    lines: list[Line] = []
    for row in printed:
        ours = own.get(row.name)
        cells = [text for column in block.columns for text in _pair(row, ours, column)]
        both = row.model_copy(update={"notes": (*row.notes, *(ours.notes if ours else ()))})
        lines.append(Line(row.name + _numbers(both, notes), tuple(cells), "ours" if ours else "paper"))
    kept = [place for place in range(len(headings)) if place % 5 == 0 or any(line.cells[place].text for line in lines)]
    short = [Line(line.label, tuple(line.cells[place] for place in kept), line.source) for line in lines]
    return Grid(tuple(headings[place] for place in kept), tuple(short), notes)


def _pair(printed: Row, ours: Row | None, column: str) -> Iterator[Text]:
    theirs = printed.scores.get(column)
    score = ours.scores.get(column) if ours else None
    yield Text(wording.mean(theirs) if theirs else "")
    yield Text(wording.mean(score) if score else "")
    yield Text(_std(score))
    yield Text(str(score.n) if score else "")
    yield Text(wording.difference(score), score.significant) if score else Text()
