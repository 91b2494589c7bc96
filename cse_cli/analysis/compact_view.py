"""`cse leaderboard` in 80 columns: your runs and the best published rows by average, one line for each method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from cse_cli.analysis.leaderboard_view import configuration_text, legend_lines, note_numbers, notes_of, remarks
from cse_cli.analysis.score_table import ScoreRow, ScoreTable
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted
from cse_cli.core.tables import Cell, Row, Table, as_rich_parts, numbered
from registry import papers

BEST = 10
"""Number of published rows that a table shows in addition to those that your runs reproduce."""
WIDTH = 80
"""Width without a terminal."""
PUBLISHED = ("paper", "community")
"""Sources of published rows. Runs of others are shown with `--wide`."""


@dataclass(frozen=True)
class Line:
    """A published row, your runs of one configuration, or both.

    Args:
        rank: Place among all published rows and your runs. None for other rows, and without an average.
        published: Published row that the runs reproduce, or None.
        own: Row of your runs, of their untrained encoder or of word overlap, or None.
    """

    rank: int | None
    published: ScoreRow | None
    own: ScoreRow | None

    @property
    def rows(self) -> tuple[ScoreRow, ...]:
        """Rows of the table that the line shows."""
        return tuple(row for row in (self.published, self.own) if row is not None)


def shown_column(table: ScoreTable) -> str:
    """Return the heading of the scores to show: the column that ranks the rows, else the first."""
    return table.ranking or table.columns[0]


def shown_lines(table: ScoreTable) -> list[Line]:
    """Return the untrained encoder, then your runs and the best published rows by rank, then word overlap."""
    column = shown_column(table)
    published = [row for row in table.rows if row.source in PUBLISHED and column in row.scores]
    runs = [row for row in table.rows if row.source == "measured" and row.scores]
    found: list[tuple[ScoreRow | None, list[ScoreRow]]] = [(row, []) for row in published]
    for run in runs:
        row = _reproduced(run, published, column)
        if row is None:
            found.append((None, [run]))
        else:
            found[published.index(row)][1].append(run)

    def height(row: ScoreRow) -> float:
        return row.scores[column].mean if column in row.scores else float("-inf")

    found.sort(key=lambda one: height(one[0] or one[1][0]), reverse=True)
    lines = [Line(None, None, row) for row in table.rows if row.source == "untrained" and column in row.scores]
    places = {id(row): place for place, row in enumerate((row for row, _ in found if row is not None), 1)}
    for rank, (row, mine) in enumerate(found, 1):
        ranked = rank if table.ranking and column in (row or mine[0]).scores else None
        lines += [Line(ranked, row, run) for run in mine]
        if not mine and places[id(row)] <= BEST:
            lines.append(Line(ranked, row, None))
    overlap = (row for row in table.rows if row.source == "baseline" and column in row.scores)
    return [*lines, *(Line(None, None, row) for row in overlap)]


def _reproduced(run: ScoreRow, published: Sequence[ScoreRow], column: str) -> ScoreRow | None:
    """Return the published row that a run is compared with: its score, under this name or that of another paper."""
    score = run.scores.get(column)
    if run.reproduces is None:
        return None
    same = [row for row in published if score is None or row.scores[column].target == score.reference]
    return max(same, key=lambda row: row.name == run.reproduces, default=None)


def compact_table(table: ScoreTable, lines: Sequence[Line], notes: Sequence[str]) -> Table:
    """Return rank, method, paper, published score, your score, and your gain or the recipe that you can run.

    The method is the published name with the settings of your runs, or the recipe of your runs. Columns without text
    are omitted.
    """
    column, shorts = shown_column(table), [papers.load(key).short for key in papers.names()]
    rows = []
    for line in lines:
        published, own = line.published, line.own
        numbers = "".join(note_numbers(row, notes) for row in line.rows)
        name, paper, theirs, last = "", "", "", Cell()
        if published is not None:
            name, theirs = published.name, published.scores[column].text()
            found = [short for short in shorts if any(one.startswith(f"{short} ") for one in published.reported_in)]
            paper = f"{found[0]} +{len(found) - 1}" if len(found) > 1 else "".join(found)
            last = Cell(published.recipe or "")
        if own is not None:
            name = (own.name if own.source != "measured" else name or own.recipes) + configuration_text(own)
            last = _gain_cell(own, column)
        yours = _own_cell(own, column)
        rank = "" if line.rank is None else str(line.rank)
        cells = (Cell(name + numbers), Cell(paper), Cell(theirs), yours, last)
        rows.append(Row(rank, cells, own.source if own else ""))
    headings = ("method", "paper", "avg" if column == "Avg" else column, "yours", "gain or recipe")
    kept = [place for place in range(len(headings)) if any(row.cells[place].text for row in rows)]
    return Table(
        table.heading,
        tuple(headings[place] for place in kept),
        tuple(Row(row.label, tuple(row.cells[place] for place in kept), row.emphasis) for row in rows),
        label="#",
        align="r" + "".join("pprrl"[place] for place in kept),
    )


def _own_cell(own: ScoreRow | None, column: str) -> Cell:
    score = None if own is None else own.scores.get(column)
    if score is None:
        return Cell()
    spread = "" if score.std is None else f" ±{score.std_text()}"
    return Cell(score.text() + spread)


def _gain_cell(own: ScoreRow, column: str) -> Cell:
    """Return the difference to the published row or to the untrained encoder, and the number of seeds."""
    if own.source != "measured":
        return Cell()
    score, seeds = own.scores.get(column), counted(len(own.seeds), "seed")
    gain = "" if score is None else score.difference_text()
    return Cell(", ".join(filter(None, (gain, seeds))), strong=score is not None and score.significant)


def print_compact(tables: Sequence[ScoreTable], others: Sequence[str] = (), *, notes: bool = False) -> None:
    """Print tables on stdout, with the notes on the rows that they show.

    Args:
        tables: Tables to print.
        others: Encoders with published rows that are not printed.
        notes: Whether to print the notes on all rows, and the remarks on the tables, too.
    """
    lines = [shown_lines(table) for table in tables]
    shown = [_only(table, of_table) for table, of_table in zip(tables, lines, strict=True)]
    listed = notes_of([*shown, *tables]) if notes else notes_of(shown)
    with stdout_console(WIDTH) as console:
        for table, of_table in zip(tables, lines, strict=True):
            console.print(Text(f"{table.heading}\n", "bold"))
            for part in as_rich_parts(compact_table(table, of_table, listed), console.width, ruled=True, gap=1):
                console.print(part)
            total = sum(row.source in PUBLISHED for row in table.rows)
            count = len({id(line.published) for line in of_table if line.published is not None})
            if count < total:
                console.print(Text(f"{count} of {total} published rows"))
            for text in remarks(table) if notes else ():
                console.print(Text(text))
            console.print()
        for text in (*numbered(listed), *legend_lines(shown, "bold" if console.is_terminal else "")):
            console.print(Text(text))
        if any(line.own is None for of_table in lines for line in of_table):
            console.print(Text("To reproduce a row: cse run RECIPE --seeds 5."))
        console.print(Text("All rows and columns: --wide. All notes: --notes."))
        if others:
            console.print(Text(f"Other encoders: --encoder {', '.join(others)}."))


def _only(table: ScoreTable, lines: Iterable[Line]) -> ScoreTable:
    """Return the table with the rows of these lines, and the scores that these lines show."""
    column, rows = shown_column(table), []
    for row in {id(row): row for line in lines for row in line.rows}.values():
        score = row.scores.get(column)
        if score is not None and row.source in PUBLISHED:
            score = score.model_copy(update={"std": None})
        rows.append(row.model_copy(update={"scores": {} if score is None else {column: score}}))
    return table.model_copy(update={"rows": tuple(rows)})
