"""Score tables on a terminal, in reports, as Markdown, LaTeX, CSV and JSON, and as one self-contained page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rich.markup import escape

from cse_cli.analysis.coverage import first_of
from cse_cli.analysis.score_table import (
    LEGEND,
    POSITIONS,
    SCHEMA_VERSION,
    SYMBOLS,
    MissingCell,
    Score,
    ScoreRow,
    ScoreTable,
    Trend,
)
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted, signed
from cse_cli.core.tables import (
    Cell,
    Row,
    Table,
    as_csv,
    as_latex,
    as_markdown,
    as_rich_parts,
    escape_markdown,
    numbered,
)
from registry.errors import CseError
from registry.papers import Badge, badge_of
from registry.paths import write_atomically

STD = "±: sample standard deviation over the seeds; in a paper's row as reported"
STATES = ("run", "ready", "needs", "held", "data", "reason", "open")
"""Order of the remarks on coverage."""
SHORT_STATES = {"ready": "ready", "needs": "incomplete", "reason": "reason", "open": "no recipe"}
"""States in the community leaderboard. The remarks below the table give the details."""
CHECKS = (
    "compared with the authors' code", "compared with code of others", "compared only with equations", "not compared"
)  # fmt: skip
"""Kinds of recipes in the remark on checks."""
EMPTY = Score(mean=0.0)
"""Placeholder of a cell without a score."""
WIDE = 110
"""Width of a terminal that has space for the tables that report a row, and for all scores of the community's list."""

SOURCES = {
    "measured": "your runs",
    "reproduction": "reproduction by others",
    "community": "community leaderboard",
}
"""Source of a row on the page, if it is not the name of the source."""


def notes_of(tables: Iterable[ScoreTable]) -> tuple[str, ...]:
    """Return the notes on the rows of tables, each once. Their order is their numbering."""
    return tuple(dict.fromkeys(note for table in tables for row in table.rows for note in row.notes))


def note_numbers(row: ScoreRow, notes: Sequence[str]) -> str:
    """Return the numbers of a row's notes for its label, such as " [1] [4]"."""
    return "".join(f" [{notes.index(note) + 1}]" for note in row.notes)


def text_table(table: ScoreTable, *, wide: bool = True, notes: tuple[str, ...] | None = None) -> Table:
    """Return the text of a table.

    Args:
        table: Table to show.
        wide: Whether to show the sources of reported rows and all community scores.
        notes: Numbered notes of several tables that are printed together. Default: those of this table.
    """
    notes = notes_of([table]) if notes is None else notes
    community = table.kind == "community"
    columns = table.columns if wide or not community else table.columns[-1:]
    rows: list[Row] = []
    for row in table.rows:
        label = row_label(row, table, places=wide and not community) + note_numbers(row, notes)
        after = (Cell(row.recipe or ""), Cell(_short_state(row))) if community else ()
        rows += _lines(row, label, columns, after)
    if not community:
        return Table(table.heading, ("n", *columns), tuple(rows), notes)
    align = "p" + "r" * (1 + len(columns)) + "ll"
    return Table(table.heading, ("n", *columns, "recipe", "runs"), tuple(rows), notes, align=align)


def _lines(row: ScoreRow, label: str, columns: Sequence[str], after: tuple[Cell, ...]) -> Iterator[Row]:
    """Yield the line of the means, of the standard deviations and of the differences."""
    scores = [row.scores.get(column, EMPTY) for column in columns]
    blank = (Cell(),) * len(after)
    means = (Cell("" if score is EMPTY else score.text()) for score in scores)
    yield Row(label, (Cell(str(row.seed_count or "")), *means, *after), row.source)
    if row.source != "untrained" and any(score.std is not None for score in scores):
        stds = (Cell(score.std_text()) for score in scores)
        yield Row("±", (Cell(), *stds, *blank), row.source, below=True)
    if any(score.difference is not None for score in scores):
        differences = (Cell(score.difference_text(), score.significant) for score in scores)
        yield Row(row.comparison, (Cell(), *differences, *blank), row.source, below=True)


def _short_state(row: ScoreRow) -> str:
    one = row.coverage[0] if row.coverage else None
    return "" if one is None else SHORT_STATES.get(one.state, counted(len(one.seeds), "seed"))


def row_label(row: ScoreRow, table: ScoreTable, *, places: bool = True) -> str:
    """Return the label of a row. `places` adds the tables that report it."""
    if row.source != "measured":
        named = places and row.source == "paper" and table.kind == "encoder" and row.reported_in
        return f"{row.name} · {', '.join(row.reported_in)}" if named else row.name
    if table.kind == "community":
        return f"your runs{configuration_text(row)}"
    if table.kind == "encoder":
        return f"{row.recipes}{configuration_text(row)}" if row.scores else f"cse run {row.recipe}"
    settings = f" [{', '.join(row.settings)}]" if row.settings else ""
    return f"your runs: {row.recipes}{settings}, {row.model}"


def configuration_text(row: ScoreRow) -> str:
    """Return the settings of a measured row, and of how many configurations it is the best one."""
    settings = f" [{', '.join(row.settings)}]" if row.settings else ""
    return settings + (f" (best of {row.configurations})" if row.configurations > 1 else "")


def remarks(table: ScoreTable) -> list[str]:
    """Return the remarks below a table, without the notes on its rows."""
    doubts = table.remarks if table.kind == "encoder" else [f"whole table: {remark}" for remark in table.remarks]
    counts = [coverage_counts(table.rows)] if table.kind == "community" else []
    trends = map(_trend_sentence, table.trends)
    counts += checked_recipes(table.rows)
    return [*doubts, *counts, *coverage_lines(table.rows), *trends, *missing_cells(table.missing, table.command)]


def coverage_counts(rows: Sequence[ScoreRow]) -> str:
    """Return the number of rows of the community leaderboard with a recipe, with runs, and without."""
    states = Counter(one.state for row in rows for one in row.coverage)
    recipes = sum(states[state] for state in ("run", "ready", "needs"))
    return (
        f"{states.total()} rows: {recipes} have a recipe ({states['run']} with finished runs), "
        f"{states['reason']} have a reason why not, {states['open']} have no recipe yet"
    )


def checked_recipes(rows: Sequence[ScoreRow]) -> list[str]:
    """Return one line with the number of recipes of the reported rows by their checks, if there are any."""
    names = {row.recipe for row in rows if row.recipe and row.source in ("paper", "community")}
    found = Counter(_checked(badge_of(name)) for name in names)
    counts = ", ".join(f"{found[kind]} {kind}" for kind in CHECKS if found[kind])
    return [f"{counted(len(names), 'recipe')}: {counts} (docs/fidelity.md)"] if names else []


def _checked(badge: Badge) -> str:
    if badge.code:
        return CHECKS[0 if any(one.authors for one in badge.code) else 1]
    return CHECKS[2 if badge.equations else 3]


def coverage_lines(rows: Sequence[ScoreRow]) -> list[str]:
    """Return one line for each state of the reported cells, with the rows in this state."""
    found: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        for one in row.coverage:
            name = f"{row.name} · {', '.join(one.columns)}" if one.columns else row.name
            found.setdefault((STATES.index(one.state), one.text), []).append(name)
    return [f"{text} · {'; '.join(dict.fromkeys(names))}" for (_, text), names in sorted(found.items())]


def _trend_sentence(one: Trend) -> str:
    if one.rho is None or one.p is None:
        return f"trend, {one.along}: not defined, because one side is constant over {one.n} cells"
    how = f"n = {one.n}, p = {one.p:.2g}, {'exact' if one.exact else 'approximate'}"
    return f"trend, {one.along}: rank correlation of measured and reported cells {signed(one.rho)} ({how})"


def missing_cells(cells: Sequence[MissingCell], command: str | None) -> list[str]:
    """Return the cells that lack runs and the command that computes them."""
    if command is None:
        return []
    none: list[str] = []
    few: list[str] = []
    for cell in cells:
        name = f"{cell.row} · {', '.join(cell.columns)}" if cell.columns else cell.row
        if cell.seeds:
            few.append(f"{name} ({cell.seeds} of {cell.requested} seeds)")
        else:
            none.append(name)
    if not none and not few:
        return [f"no runs yet: {command}"]
    parts = [f"{first_of(none, 6)} without runs" if none else "", first_of(few, 6)]
    return [f"missing, {command}: {'; '.join(filter(None, parts))}"]


def legend_lines(tables: Iterable[ScoreTable], strong: str = "bold") -> list[str]:
    """Return one line for each mark that occurs, for ±, and for the style of significant differences, if any."""
    scores = [score for table in tables for row in table.rows for score in row.scores.values()]
    used = {mark for score in scores for mark in score.marks}
    lines = [STD] if any(score.std is not None for score in scores) else []
    lines += [f"{SYMBOLS[mark]} {LEGEND[mark]}" for mark in SYMBOLS if mark in used]
    if strong and any(score.significant for score in scores):
        lines.append(f"{strong}: a statistically significant difference")
    return lines


def table_parts(table: ScoreTable) -> list[Table | Sequence[str]]:
    """Return a table for a report, with its remarks and the legend of its marks."""
    lines = (*remarks(table), *legend_lines([table]))
    return [text_table(table), lines] if lines else [text_table(table)]


def print_tables(tables: Sequence[ScoreTable]) -> None:
    """Print tables with all columns and rows on stdout, then the notes on their rows in one numbering."""
    notes = notes_of(tables)
    with stdout_console() as console:
        for table in tables:
            shown = text_table(table, wide=console.width >= WIDE, notes=notes)
            console.print(f"[bold]{escape(table.heading)}[/bold]\n")
            for part in as_rich_parts(shown, console.width, ruled=True, gap=1):
                console.print(part)
            for line in remarks(table):
                console.print(escape(line))
            console.print()
        for line in (*numbered(notes), *legend_lines(tables, "bold" if console.is_terminal else "")):
            console.print(escape(line))


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
    """Write the page and replace an existing file atomically."""
    try:
        path.parent.stat()  # a missing directory is an error and is not created
        write_atomically(path, to_html(tables))
    except OSError as error:
        raise CseError(
            f"--html '{path}': cannot write the file: {error.strerror}",
            "use a file in an existing directory",
            code="leaderboard.cannot_write",
        ) from error
