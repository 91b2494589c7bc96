"""The leaderboard as Markdown, LaTeX, CSV and JSON, and as one self-contained page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cse_cli.analysis.leaderboard_view import legend_lines, remarks, row_label, text_table
from cse_cli.analysis.score import LEGEND, POSITIONS
from cse_cli.analysis.score_table import SCHEMA_VERSION, ScoreRow, ScoreTable
from cse_cli.core.tables import as_csv, as_latex, as_markdown, escape_markdown
from registry.errors import CseError
from registry.paths import write_atomically

SOURCES = {
    "measured": "your runs",
    "reproduction": "reproduction by others",
    "community": "community leaderboard",
}
"""Source of a row on the page, if it is not the name of the source."""


def to_markdown(tables: Sequence[ScoreTable]) -> str:
    """Return GitHub tables with remarks and legend."""
    parts: list[str] = []
    for table in tables:
        parts += [f"### {escape_markdown(table.heading)}", as_markdown(text_table(table))]
        parts += ["  \n".join(map(escape_markdown, remarks(table)))]
    legend = "  \n".join(map(escape_markdown, legend_lines(tables)))
    return "\n\n".join(filter(None, [*parts, legend])) + "\n"


def to_latex(tables: Sequence[ScoreTable]) -> str:
    """Return a `table` environment for each table. It requires the package booktabs."""
    legend = legend_lines(tables)
    every = (as_latex(text_table(table), [*remarks(table), *legend]) for table in tables)
    return "\n".join(["% \\usepackage{booktabs}", *every]) + "\n"


def to_csv(tables: Sequence[ScoreTable]) -> str:
    """Return one line for each cell, with full precision."""
    return as_csv([(*_TABLE, *_ROW, "column", *_SCORE, "coverage"), *(cell for one in tables for cell in _cells(one))])


_TABLE = ("kind", "encoder", "study")
_ROW = (
    "language", "paper", "table", "source", "name", "reported_in", "reproduces", "recipes", "recipe_hash", "experiment",
    "settings", "model", "notes",
)  # fmt: skip
_SCORE = ("n", "mean", "std", "reference", "difference", "p", "significant", "marks", "implied")


def _cells(table: ScoreTable) -> Iterator[list[object]]:
    for row in table.rows:
        about = [getattr(table, name) for name in _TABLE]
        about += [getattr(row, name) or getattr(table, name, None) for name in _ROW]
        for column, score in row.scores.items():
            states = [one.text for one in row.coverage if not one.columns or column in one.columns]
            values = [*about, column, *(getattr(score, name) for name in _SCORE), *states[:1]]
            yield ["; ".join(value) if isinstance(value, tuple) else value for value in values]


def to_json(tables: Sequence[ScoreTable]) -> str:
    """Return one JSON document."""
    plain = [table.model_dump(mode="json") for table in tables]
    for table, dumped in zip(tables, plain, strict=True):
        for row, dumped_row in zip(table.rows, dumped["rows"], strict=True):
            for column, score in row.scores.items():
                dumped_row["scores"][column]["difference"] = score.difference
    return json.dumps({"schema_version": SCHEMA_VERSION, "tables": plain}, ensure_ascii=False, indent=2) + "\n"


WRITERS: dict[str, Callable[[Sequence[ScoreTable]], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "latex": to_latex,
}


def to_html(tables: Sequence[ScoreTable]) -> str:
    """Return one self-contained page with tables that sort and filter."""
    from cse_cli.analysis.pages import render  # imports Jinja

    return render(
        "leaderboard.html.j2",
        tables=map(_page_table, tables),
        legend=legend_lines(tables),
        meaning=LEGEND,
        positions=POSITIONS,
    )


def _page_table(table: ScoreTable) -> dict[str, object]:
    notes = list(dict.fromkeys(note for row in table.rows for note in row.notes))
    rows = [
        {
            "row": row,
            "label": _page_label(row, table),
            "notes": [notes.index(note) + 1 for note in row.notes],
            "of": _page_source(row, table),
        }
        for row in table.rows
    ]
    return {
        "heading": table.heading, "columns": table.columns, "rows": rows, "notes": notes, "remarks": remarks(table)
    }  # fmt: skip


def _page_label(row: ScoreRow, table: ScoreTable) -> str:
    """Return a row's label with the reported row that it belongs to, because sorting separates them."""
    label = row_label(row, table, places=False)
    if row.source != "measured" or table.kind == "encoder":
        return label
    return " · ".join(filter(None, (row.reproduces, label, row.recipe if table.kind == "community" else "")))


def _page_source(row: ScoreRow, table: ScoreTable) -> str:
    """Return the source of a row, and the reference of a measured row."""
    if row.source == "paper" and table.kind == "encoder":
        return ", ".join(row.reported_in)
    source = SOURCES.get(row.source, row.source)
    if row.source == "community" and row.recipe:
        return f"{source}, {row.recipe}"
    compared = row.source == "measured" and any(score.difference is not None for score in row.scores.values())
    return f"{source}, compared {row.comparison}" if compared else source


def write_page(tables: Sequence[ScoreTable], path: Path) -> None:
    """Write the page and replace an existing file atomically.

    Raises:
        CseError: If the file cannot be written.
    """
    try:
        path.parent.stat()  # a missing directory is an error and is not created
        write_atomically(path, to_html(tables))
    except OSError as error:
        raise CseError(
            f"--html '{path}': cannot write the file: {error.strerror}",
            "use a file in an existing directory",
            code="leaderboard.cannot_write",
        ) from error
