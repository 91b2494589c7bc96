"""Score tables as text: on a terminal, in reports and in files, with remarks and legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.markup import escape

from cse_cli.analysis.coverage import first_of
from cse_cli.analysis.score import LEGEND, SYMBOLS, Score
from cse_cli.analysis.score_table import MissingCell, ScoreRow, ScoreTable, Trend
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted, signed
from cse_cli.core.tables import Cell, Row, Table, as_rich_parts

STD = "±: sample standard deviation over the seeds; in a paper's row as reported"
STATES = ("run", "ready", "needs", "held", "data", "reason", "open")
"""Order of the remarks on coverage."""
SHORT_STATES = {"ready": "ready", "needs": "incomplete", "reason": "reason", "open": "no recipe"}
"""States in the community leaderboard. The remarks below the table give the details."""
EMPTY = Score(mean=0.0)
"""Placeholder of a cell without a score."""
WIDE = 110
"""Width of a terminal that has space for the tables that report a row, and for all scores of the community's list."""


def text_table(table: ScoreTable, *, wide: bool = True) -> Table:
    """Return the text of a table. `wide` shows the sources of reported rows and all community scores."""
    notes = tuple(dict.fromkeys(note for row in table.rows for note in row.notes))
    community = table.kind == "community"
    columns = table.columns if wide or not community else table.columns[-1:]
    rows: list[Row] = []
    for row in table.rows:
        label = row_label(row, table, places=wide and not community) + _note_numbers(row.notes, notes)
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


def _note_numbers(notes: Sequence[str], every: Sequence[str]) -> str:
    return "".join(f" [{every.index(note) + 1}]" for note in notes)


def row_label(row: ScoreRow, table: ScoreTable, *, places: bool = True) -> str:
    """Return the label of a row. `places` adds the tables that report it."""
    if row.source != "measured":
        named = places and row.source == "paper" and table.kind == "encoder" and row.reported_in
        return f"{row.name} · {', '.join(row.reported_in)}" if named else row.name
    settings = f" [{', '.join(row.settings)}]" if row.settings else ""
    best = f" (best of {row.configurations})" if row.configurations > 1 else ""
    if table.kind == "community":
        return f"your runs{settings}{best}"
    if table.kind == "encoder":
        return f"{row.recipes}{settings}{best}" if row.scores else f"cse run {row.recipe}"
    return f"your runs: {row.recipes}{settings}, {row.model}"


def remarks(table: ScoreTable) -> list[str]:
    """Return the remarks below a table, without the notes on its rows."""
    doubts = table.remarks if table.kind == "encoder" else [f"whole table: {remark}" for remark in table.remarks]
    counts = [coverage_counts(table.rows)] if table.kind == "community" else []
    trends = map(_trend_sentence, table.trends)
    return [*doubts, *counts, *coverage_lines(table.rows), *trends, *missing_cells(table.missing, table.command)]


def coverage_counts(rows: Sequence[ScoreRow]) -> str:
    """Return the number of rows of the community leaderboard with a recipe, with runs, and without."""
    states = Counter(one.state for row in rows for one in row.coverage)
    recipes = sum(states[state] for state in ("run", "ready", "needs"))
    return (
        f"{states.total()} rows: {recipes} have a recipe ({states['run']} with finished runs), "
        f"{states['reason']} have a reason why not, {states['open']} have no recipe yet"
    )


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
    """Print tables on stdout."""
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
