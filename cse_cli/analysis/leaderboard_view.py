"""The leaderboard on a terminal, as Markdown, LaTeX, CSV and JSON, and as a page; and what its tables say in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from cse_cli.analysis.papers import SCHEMA_VERSION, Missing, ScoreRow, ScoreTable, Trend
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted, signed
from cse_cli.core.stats import LEGEND, SYMBOLS, Mark, Score
from cse_cli.core.tables import Cell, Row, Table, as_latex, as_markdown, as_rich_parts, csv_lines, escape_markdown
from registry.errors import CseError
from registry.paths import write_atomically

if TYPE_CHECKING:
    from cse_cli.analysis.pages import Part

POSITIONS: tuple[Mark, ...] = ("within", "above", "below", "incomparable")
"""Marks of a difference; the others are doubts about the number itself."""
SPREAD = "±: sample standard deviation over the seeds, in a paper's row as printed"
STATES = ("run", "ready", "needs", "held", "data", "reason", "open")
"""Order of the lines that say who ran a table's printed cells."""
ANSWERED = {"ready": "ready", "needs": "needs", "reason": "reason", "open": "no recipe yet"}
"""The same of a row of the field's list, in a word; what is needed and the reasons stand below the table."""
NAMED = 6
"""Missing cells that are named."""
SIDE_BY_SIDE = 3
"""Most columns of a study's table that shows paper and ours side by side."""
WIDE = 110
"""Columns a terminal needs to have room for where each row is printed, and for all scores of the field's list."""
SOURCES = {"reproduction": "run again by others", "field": "the field's list"}
"""What a row's second column says, where it is not the source's name."""


def text_table(table: ScoreTable, *, wide: bool = True) -> Table:
    """Return a table's texts: a study's short table has ours beside the paper's column, others have ours below.

    Args:
        table: With its scores.
        wide: Say of each printed row where it is printed; of the field's list, show more than the average.
    """
    notes = tuple(dict.fromkeys(note for row in table.rows for note in row.notes))
    if table.kind == "field":
        return _field_table(table, notes, wide)
    if table.kind == "study" and len(table.columns) <= SIDE_BY_SIDE:
        return _side_by_side(table, notes)
    rows = [line for row in table.rows for line in _stacked(row, table, notes, wide)]
    return Table(table.heading, ("n", *table.columns), tuple(rows), notes)


def _stacked(row: ScoreRow, table: ScoreTable, notes: tuple[str, ...], wide: bool) -> Iterator[Row]:
    """Yield the cells of a row, of its spread and of its differences: short ones, so that a table stays narrow."""
    scores = [row.scores.get(column) for column in table.columns]
    label = row_label(row, table, places=wide) + _note_numbers(row.notes, notes)
    yield Row(label, (Cell(str(seed_count(row) or "")), *map(_mean_cell, scores)), row.source)
    if row.source != "untrained" and any(s and s.std is not None for s in scores):
        yield Row("±", (Cell(), *map(_spread_cell, scores)), row.source, below=True)
    if any(s and s.difference is not None for s in scores):
        yield Row(compared_to(row), (Cell(), *map(_difference_cell, scores)), row.source, below=True)


def _field_table(table: ScoreTable, notes: tuple[str, ...], wide: bool) -> Table:
    """Return the field's list: scores, and of each listed row the recipe that answers it and whether it ran here."""
    shown = table if wide else table.model_copy(update={"columns": table.columns[-1:]})
    rows: list[Row] = []
    for row in table.rows:
        first, *below = _stacked(row, shown, notes, False)
        rows.append(replace(first, cells=(*first.cells, Cell(row.recipe or ""), Cell(_answered(row)))))
        rows += [replace(line, cells=(*line.cells, Cell(), Cell())) for line in below]
    headings = ("n", *shown.columns, "recipe", "here")
    return Table(table.heading, headings, tuple(rows), notes, align="p" + "r" * (1 + len(shown.columns)) + "ll")


def _answered(row: ScoreRow) -> str:
    one = row.here[0] if row.here else None
    return "" if one is None else ANSWERED.get(one.state, counted(len(one.seeds), "seed"))


def _side_by_side(table: ScoreTable, notes: tuple[str, ...]) -> Table:
    """Return one line a printed row: the paper's cell, ours, spread, seeds and difference, of each column."""
    ours = {row.name: row for row in table.rows if row.source == "ours"}
    headings = [heading for column in table.columns for heading in (column, "ours", "±", "n", "difference")]
    rows: list[Row] = []
    for printed in table.rows:
        if printed.source == "paper":
            own = ours.get(printed.name)
            label = printed.name + _note_numbers((*printed.notes, *(own.notes if own else ())), notes)
            cells = [cell for column in table.columns for cell in _pair(printed, own, column)]
            rows.append(Row(label, tuple(cells), "ours" if own else "paper"))
    kept = [place for place in range(len(headings)) if place % 5 == 0 or any(row.cells[place].text for row in rows)]
    short = [Row(row.label, tuple(row.cells[place] for place in kept), row.emphasis) for row in rows]
    return Table(table.heading, tuple(headings[place] for place in kept), tuple(short), notes)


def _pair(printed: ScoreRow, ours: ScoreRow | None, column: str) -> tuple[Cell, ...]:
    score = ours.scores.get(column) if ours else None
    seeds = Cell(str(score.n) if score else "")
    theirs = _mean_cell(printed.scores.get(column))
    return theirs, _mean_cell(score), _spread_cell(score), seeds, _difference_cell(score)


def _note_numbers(notes: Sequence[str], every: Sequence[str]) -> str:
    return "".join(f" [{every.index(note) + 1}]" for note in notes)


def _mean_cell(score: Score | None) -> Cell:
    return Cell(score_text(score) if score else "")


def _spread_cell(score: Score | None) -> Cell:
    return Cell(f"{score.std:.{score.digits}f}" if score and score.std is not None else "")


def _difference_cell(score: Score | None) -> Cell:
    return Cell(difference(score), score.significant) if score else Cell()


def seed_count(row: ScoreRow) -> int:
    """Return the seeds of our runs, or those of a row that others measured; 0 where they are not known."""
    return len(row.seeds) or max((s.n for s in row.scores.values() if row.source == "reproduction"), default=0)


def row_label(row: ScoreRow, table: ScoreTable, *, places: bool = True) -> str:
    """Return what stands before a row's numbers.

    Args:
        row: The row.
        table: The table it stands in.
        places: Say where it is printed, too.
    """
    if row.source != "ours":
        place = f" · {', '.join(row.printed)}" if table.kind == "encoder" and row.printed and places else ""
        return row.name + (place if row.source in ("paper", "field") else "")
    settings = f" [{', '.join(row.settings)}]" if row.settings else ""
    recipe = recipes_of(row)
    best = f" (best of {row.configurations})" if row.configurations > 1 else ""
    if table.kind == "field":
        return f"ours{settings}{best}"
    if table.kind == "encoder":
        return f"{recipe}{settings}{best}" if row.scores else f"cse run {row.recipe}"
    return f"ours: {recipe}{settings}, {row.model}"


def recipes_of(row: ScoreRow) -> str:
    """Return the names of all recipes that a row's runs come from."""
    return ", ".join(filter(None, (row.recipe, *row.copies)))


def compared_to(row: ScoreRow) -> str:
    """Return what a row's differences are to."""
    return f"to {row.answers}" if row.answers else "to before training"


def score_text(score: Score) -> str:
    """Return a number with the doubts about it."""
    return f"{score.mean:.{score.digits}f}{_symbols(score, doubts=True)}"


def difference(score: Score) -> str:
    """Return a signed difference with its mark; nothing where there is none."""
    if score.difference is None:
        return ""
    return f"{score.difference:+.{score.digits}f}".replace("-", "−") + _symbols(score, doubts=False)


def _symbols(score: Score, *, doubts: bool) -> str:
    """Return the marks of a number itself, or of its difference."""
    return "".join(SYMBOLS[mark] for mark in score.marks if (mark not in POSITIONS) == doubts)


def remarks(table: ScoreTable) -> list[str]:
    """Return what stands below a table, besides the rows' notes."""
    doubts = table.remarks if table.kind == "encoder" else [f"whole table: {remark}" for remark in table.remarks]
    trends = map(_trend_sentence, table.trends)
    counts = [answered_rows(table.rows)] if table.kind == "field" else []
    return [*doubts, *counts, *who_ran(table.rows), *trends, *missing_cells(table.missing, table.command)]


def answered_rows(rows: Sequence[ScoreRow]) -> str:
    """Return how many rows of the field's list have a recipe, ran here, have nothing but a reason, or have neither."""
    states = Counter(one.state for row in rows for one in row.here)
    recipes = sum(states[state] for state in ("run", "ready", "needs"))
    return (
        f"{states.total()} rows: {recipes} have a recipe ({states['run']} of them run here), "
        f"{states['reason']} a reason, {states['open']} no recipe yet"
    )


def who_ran(rows: Sequence[ScoreRow]) -> list[str]:
    """Return who ran the printed cells, or what is lacking: a line for each answer, with its rows, in a fixed order."""
    found: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        for one in row.here:
            name = f"{row.name} · {', '.join(one.columns)}" if one.columns else row.name
            found.setdefault((STATES.index(one.state), one.text), []).append(name)
    return [f"{text} · {'; '.join(dict.fromkeys(names))}" for (_, text), names in sorted(found.items())]


def _trend_sentence(one: Trend) -> str:
    if one.rho is None or one.p is None:
        return f"trend, {one.along}: there is none, one side is constant over {one.n} cells"
    how = f"n = {one.n}, p = {one.p:.2g}, {'exact' if one.exact else 'approximate'}"
    return f"trend, {one.along}: rank correlation of ours with the paper's {signed(one.rho)} ({how})"


def missing_cells(cells: Sequence[Missing], command: str | None) -> list[str]:
    """Return which cells lack runs, and the command that makes them."""
    if command is None:
        return []
    names = [(f"{cell.row} · {', '.join(cell.columns)}" if cell.columns else cell.row, cell) for cell in cells]
    none = [name for name, cell in names if not cell.seeds]
    few = [f"{name} ({cell.seeds} of {cell.wanted} seeds)" for name, cell in names if cell.seeds]
    if not none and not few:
        return [f"no runs yet: {command}"]
    parts = [f"{_shortened(none)} without runs" if none else "", _shortened(few)]
    return [f"missing, {command}: {'; '.join(filter(None, parts))}"]


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def legend_lines(tables: Iterable[ScoreTable], strong: str = "bold") -> list[str]:
    """Return a line for each mark that occurs, and for the spread.

    Args:
        tables: All that are shown.
        strong: How this format shows that a difference is significant; "" where it does not.
    """
    scores = [score for table in tables for row in table.rows for score in row.scores.values()]
    used = {mark for score in scores for mark in score.marks}
    lines = [f"{SYMBOLS[mark]} {LEGEND[mark]}" for mark in SYMBOLS if mark in used]
    if any(score.std is not None for score in scores):
        lines.insert(0, SPREAD)
    if strong and any(score.significant for score in scores):
        lines.append(f"{strong}: only where above or below the spread")
    return lines


def table_parts(table: ScoreTable) -> tuple[Part, ...]:
    """Return a table for a report, with its remarks and the legend of its marks."""
    from cse_cli.analysis.pages import Remarks

    lines = (*remarks(table), *legend_lines([table]))
    return (text_table(table), Remarks(lines)) if lines else (text_table(table),)


def print_tables(tables: Sequence[ScoreTable]) -> None:
    """Write tables on stdout."""
    with stdout_console() as console:
        for table in tables:
            shown = text_table(table, wide=console.width >= WIDE)
            console.print(f"[bold]{escape(table.heading)}[/bold]\n")
            for part in as_rich_parts(shown, console.width, ruled=True, gap=1):
                console.print(part)
            for line in (*shown.numbered_notes, *remarks(table)):
                console.print(escape(line))
            console.print()
        for line in legend_lines(tables, "bold" if console.is_terminal else ""):
            console.print(escape(line))


def to_markdown(tables: Sequence[ScoreTable]) -> str:
    """Return GitHub tables."""
    parts: list[str] = []
    for table in tables:
        parts += [f"### {escape_markdown(table.heading)}", as_markdown(text_table(table))]
        parts += ["  \n".join(map(escape_markdown, remarks(table)))]
    legend = "  \n".join(map(escape_markdown, legend_lines(tables)))
    return "\n\n".join(filter(None, [*parts, legend])) + "\n"


def to_latex(tables: Sequence[ScoreTable]) -> str:
    """Return one `table` environment a table: needs the package booktabs; for pdflatex, xelatex and lualatex."""
    legend = legend_lines(tables)
    every = (as_latex(text_table(table), [*remarks(table), *legend]) for table in tables)
    return "\n".join(["% \\usepackage{booktabs}", *every]) + "\n"


_CSV = (
    "kind", "encoder", "language", "paper", "table", "study", "source", "name", "printed", "answers", "recipe",
    "recipe_hash", "experiment", "settings", "model", "column", "n", "mean", "std", "reference", "difference",
    "significant", "marks", "implied", "notes", "here",
)  # fmt: skip


def to_csv(tables: Sequence[ScoreTable]) -> str:
    """Return one line a cell, full precision, for other programs."""
    return csv_lines([_CSV, *_csv_rows(tables)])


def _csv_rows(tables: Sequence[ScoreTable]) -> Iterator[list[object]]:
    for table in tables:
        for row in table.rows:
            place = (table.kind, table.encoder, row.language or table.language, row.paper or table.paper)
            about = (row.table or table.table, table.study, row.source, row.name, "; ".join(row.printed), row.answers)
            recipe = (recipes_of(row) or None, row.recipe_hash, row.experiment, "; ".join(row.settings), row.model)
            for column, score in row.scores.items():
                numbers = (score.n, score.mean, score.std, score.reference, score.difference, score.significant)
                marks = ("; ".join(score.marks), score.implied, "; ".join(row.notes))
                here = next((one.text for one in row.here if not one.columns or column in one.columns), "")
                yield [*place, *about, *recipe, column, *numbers, *marks, here]


def to_json(tables: Sequence[ScoreTable]) -> str:
    """Return one document."""
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


def page(tables: Sequence[ScoreTable]) -> str:
    """Return the leaderboard as one self-contained page: sortable, works offline, light and dark."""
    from cse_cli.analysis.pages import render  # imports Jinja, which a terminal does not need

    return render("leaderboard.html.j2", tables=map(_page_table, tables), legend=legend_lines(tables))


def _page_table(table: ScoreTable) -> dict[str, object]:
    notes = list(dict.fromkeys(note for row in table.rows for note in row.notes))
    rows = [
        {
            "source": row.source,
            "name": _page_label(row, table),
            "notes": [notes.index(note) + 1 for note in row.notes],
            "of": _page_source(row, table),
            "seeds": seed_count(row) or "",
            "cells": [_page_cell(row.scores.get(column), row) for column in table.columns],
        }
        for row in table.rows
    ]
    return {
        "heading": table.heading, "columns": table.columns, "rows": rows, "notes": notes, "remarks": remarks(table)
    }  # fmt: skip


def _page_label(row: ScoreRow, table: ScoreTable) -> str:
    """Return a row's label; where sorting parts it from the printed row above it, with that row's name."""
    label = row_label(row, table, places=False)
    if row.source != "ours" or table.kind == "encoder":
        return label
    return " · ".join(filter(None, (row.answers, label, row.recipe if table.kind == "field" else "")))


def _page_source(row: ScoreRow, table: ScoreTable) -> str:
    """Return whose a row is, and of ours what it is compared with."""
    if row.source == "paper" and table.kind == "encoder":
        return ", ".join(row.printed)
    differs = row.source == "ours" and any(score.difference is not None for score in row.scores.values())
    source = SOURCES.get(row.source, row.source)
    if row.source == "field" and row.recipe:
        source = f"{source}, {row.recipe}"
    return f"{source}, compared {compared_to(row)}" if differs else source


def _page_cell(score: Score | None, row: ScoreRow) -> dict[str, object] | None:
    """Return number, small lines below it, and the difference: for screen readers its mark by name."""
    if score is None:
        return None
    small = [
        f"± {score.std:.{score.digits}f}" if score.std is not None and row.source != "untrained" else "",
        f"meant: {score.implied:g}" if score.implied is not None else "",
        f"{score.low:g} to {score.high:g}" if score.low is not None and score.high is not None else "",
    ]
    spoken = [f"{score.difference or 0.0:+.{score.digits}f}", *(mark for mark in score.marks if mark in POSITIONS)]
    return {
        "value": repr(score.mean),
        "title": "; ".join(LEGEND[mark] for mark in score.marks),
        "mean": score_text(score),
        "small": list(filter(None, small)),
        "difference": difference(score),
        "significant": score.significant,
        "spoken": f"{', '.join(spoken)} {compared_to(row)}",
    }


def write_page(tables: Sequence[ScoreTable], path: Path) -> None:
    """Write the page; a file that is there already is replaced as a whole.

    Raises:
        CseError: It cannot be written.
    """
    try:
        path.parent.stat()  # a folder that is not there is an error, and not made
        write_atomically(path, page(tables))
    except OSError as error:
        raise CseError(
            f"--html: '{path}' cannot be written: {error.strerror}", "name a file in a folder that exists"
        ) from error
