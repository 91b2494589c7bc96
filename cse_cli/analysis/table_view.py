"""Score tables on a terminal, whole or in 80 columns, in reports, as Markdown, LaTeX, CSV, JSON and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from cse_cli.analysis.score_table import MARKS, SCHEMA_VERSION, Score, ScoreRow, ScoreTable
from cse_cli.core import console
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import counted, duration, grouped, signed
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
from registry import papers
from registry.errors import CseError
from registry.papers import badge_of
from registry.paths import write_atomically

STD = "±: sample standard deviation over the seeds; in a paper's row as reported"
CHECKS = (
    "compared with the authors' code", "compared with code of others", "compared only with equations", "not compared"
)  # fmt: skip
"""Kinds of recipes in the remark on checks."""
MOST_NAMED = 6
"""Number of missing cells that a remark names."""
EMPTY = Score(mean=0.0)
WIDE = 110
"""Width of a terminal that has space for the tables that report a row, and for all scores of the community's list."""


class TextColumn(NamedTuple):
    """A column of text about a row, in these kinds of tables. `after` is whether it follows the scores."""

    heading: str
    kinds: Collection[str]
    text: Callable[[ScoreRow], str]
    align: str = "r"
    after: bool = False


TEXT_COLUMNS = (
    TextColumn("n", ("encoder", "table", "study", "community", "comparison"), lambda row: str(row.seed_count or "")),
    TextColumn("recipe", ("community",), lambda row: row.recipe or "", align="l", after=True),
    TextColumn("step", ("seeds",), lambda row: "" if row.step is None else str(row.step), after=True),
    TextColumn("time", ("seeds",), lambda row: "" if row.seconds is None else duration(row.seconds), after=True),
)
"""Columns of all tables, in order. A report and `cse run` show the same ones."""


def notes_of(rows: Iterable[ScoreRow]) -> tuple[str, ...]:
    """Return the notes on rows, each once. Their order is their numbering."""
    return tuple(dict.fromkeys(note for row in rows for note in row.notes))


def rows_of(tables: Iterable[ScoreTable]) -> list[ScoreRow]:
    """Return the rows of several tables."""
    return [row for table in tables for row in table.rows]


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
    notes = notes_of(table.rows) if notes is None else notes
    columns = table.columns if wide or table.kind != "community" else table.columns[-1:]
    texts = [column for column in TEXT_COLUMNS if table.kind in column.kinds]
    first, last = ([column for column in texts if column.after == after] for after in (False, True))
    rows: list[Row] = []

    def add(label: str, row: ScoreRow, cells: Iterable[Cell], *, below: bool = False) -> None:
        n, ends = ([Cell("" if below else column.text(row)) for column in of] for of in (first, last))
        rows.append(Row(label, (*n, *cells, *ends), row.source, below and label != "gain"))

    for row in table.rows:
        label = row.name
        if row.source == "measured" and table.kind == "encoder":
            label = f"{row.recipes}{configuration_text(row)}" if row.scores else f"cse run {row.recipe}"
        elif row.source == "measured" and table.kind == "community":
            label = f"your runs{configuration_text(row)}"
        elif row.source == "measured" and table.paper is not None:
            label = f"your runs: {row.recipes}{configuration_text(row)}, {row.model}"
        elif wide and row.source == "paper" and table.kind == "encoder" and row.reported_in:
            label = f"{row.name} · {', '.join(row.reported_in)}"
        scores = [row.scores.get(column, EMPTY) for column in columns]
        means = (Cell("" if score is EMPTY else score.text()) for score in scores)
        add(label + note_numbers(row, notes), row, means)
        if row.source != "untrained" and any(score.std is not None for score in scores):
            add("±", row, (Cell(score.std_text()) for score in scores), below=True)
        if any(score.difference is not None for score in scores):
            gains = (Cell(score.difference_text(), score.significant) for score in scores)
            add("gain" if table.kind == "seeds" else row.comparison, row, gains, below=True)
    scored = [(column, "r") for column in columns]
    shown = [*((c.heading, c.align) for c in first), *scored, *((c.heading, c.align) for c in last)]
    headings, align = zip(*shown, strict=True)
    return Table(table.heading, headings, tuple(rows), notes, align=f"p{''.join(align)}")


def configuration_text(row: ScoreRow) -> str:
    """Return the settings of a measured row, and of how many configurations it is the best one."""
    settings = f" [{', '.join(row.settings)}]" if row.settings else ""
    return settings + (f" (best of {row.configurations})" if row.configurations > 1 else "")


def remarks(table: ScoreTable) -> list[str]:
    """Return the remarks below a table, without the notes on its rows."""
    doubts = table.kind in ("table", "study")
    lines = [f"whole table: {remark}" if doubts else remark for remark in table.remarks]
    lines += checked_recipes(table.rows)
    for one in table.trends:
        if one.rho is None or one.p is None:
            lines.append(f"trend, {one.along}: not defined, because one side is constant over {one.n} cells")
        else:
            how = f"n = {one.n}, p = {one.p:.2g}, {'exact' if one.exact else 'approximate'}"
            lines.append(
                f"trend, {one.along}: rank correlation of measured and reported cells {signed(one.rho)} ({how})"
            )
    if table.command is not None:
        lines.append(_missing_cells(table) or f"no runs yet: {table.command}")
    return lines


def _missing_cells(table: ScoreTable) -> str:
    """Return the cells that lack runs, with the command that computes them. Empty without any."""
    none, few = list[str](), list[str]()
    for cell in table.missing:
        name = f"{cell.row} · {', '.join(cell.columns)}" if cell.columns else cell.row
        if cell.seeds:
            few.append(f"{name} ({cell.seeds} of {cell.requested} seeds)")
        else:
            none.append(name)
    parts = []
    for names, end in ((none, " without runs"), (few, "")):
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        parts += [", ".join(names[:MOST_NAMED]) + more + end] if names else []
    return f"missing, {table.command}: {'; '.join(parts)}" if parts else ""


def checked_recipes(rows: Sequence[ScoreRow]) -> list[str]:
    """Return one line with the number of recipes of the reported rows by their checks, if there are any."""
    names = {row.recipe for row in rows if row.recipe and row.source in ("paper", "community")}
    badges = [badge_of(name) for name in names]
    found: Counter[str] = Counter()
    for badge in badges:
        if badge.code:
            found[CHECKS[0 if any(one.authors for one in badge.code) else 1]] += 1
        else:
            found[CHECKS[2 if badge.equations else 3]] += 1
    counts = ", ".join(f"{found[kind]} {kind}" for kind in CHECKS if found[kind])
    if trained := sum(bool(badge.trajectories) for badge in badges):
        counts += f"; {trained} trained next to the authors' program"
    return [f"{counted(len(names), 'recipe')}: {counts} (docs/fidelity.md)"] if names else []


def legend_lines(rows: Iterable[ScoreRow], strong: str = "bold") -> list[str]:
    """Return one line for each mark that occurs, for ±, and for the style of significant differences, if any."""
    scores = [score for row in rows for score in row.scores.values()]
    used = {mark for score in scores for mark in score.marks}
    lines = [STD] if any(score.std is not None for score in scores) else []
    lines += [f"{symbol} {meaning}" for mark, (symbol, meaning) in MARKS.items() if mark in used]
    if strong and any(score.significant for score in scores):
        lines.append(f"{strong}: a statistically significant difference")
    return lines


def table_parts(table: ScoreTable) -> list[Table | Sequence[str]]:
    """Return a table for a report, with its remarks and the legend of its marks."""
    lines = (*remarks(table), *legend_lines(table.rows))
    return [text_table(table), lines] if lines else [text_table(table)]


def print_tables(tables: Sequence[ScoreTable]) -> None:
    """Print tables with all columns and rows on stdout, then the notes on their rows in one numbering."""
    rows = rows_of(tables)
    notes = notes_of(rows)
    with stdout_console() as console:
        for table in tables:
            _print(console, table, text_table(table, wide=console.width >= WIDE, notes=notes), remarks(table))
        for line in (*numbered(notes), *legend_lines(rows, "bold" if console.is_terminal else "")):
            console.print(Text(line))


def _print(console: Console, table: ScoreTable, shown: Table, lines: Iterable[str]) -> None:
    console.print(Text(f"{table.heading}\n", "bold"))
    for part in as_rich_parts(shown, console.width, ruled=True, gap=1):
        console.print(part)
    for line in lines:
        console.print(Text(line))
    console.print()


BEST = 10
"""Number of published rows that a table shows in addition to those that your runs reproduce."""
WIDTH = 80
"""Width without a terminal."""
PUBLISHED = ("paper", "community")
"""Sources of published rows. Runs of others are shown with `--wide`."""


class Line(NamedTuple):
    """A published row, your runs of one experiment, or both. The rank is among all of them, if they have a score.

    `own` can also be the row of the untrained encoder or of word overlap.
    """

    rank: int | None
    published: ScoreRow | None
    own: ScoreRow | None


def shown_lines(table: ScoreTable) -> list[Line]:
    """Return the untrained encoder, then your runs and the best published rows by rank, then word overlap."""
    column = table.shown_column
    of_source = grouped((row for row in table.rows if column in row.scores), lambda row: row.source)
    published = [row for row in table.rows if row.source in PUBLISHED and column in row.scores]
    runs, alone = dict[int, list[ScoreRow]](), list[ScoreRow]()
    for run in (row for row in table.rows if row.source == "measured" and row.scores):
        # A paper's row that another paper copies is reproduced under both names.
        score, same = run.scores.get(column), published if run.reproduces is not None else []
        if same := [row for row in same if score is None or row.scores[column].target == score.reference]:
            runs.setdefault(id(max(same, key=lambda row: row.name == run.reproduces)), []).append(run)
        else:
            alone.append(run)

    def height(row: ScoreRow) -> float:
        return row.scores[column].mean if column in row.scores else float("-inf")

    lines, place = [Line(None, None, row) for row in of_source.get("untrained", ())], 0
    for rank, row in enumerate(sorted([*published, *alone], key=height, reverse=True), 1):
        ranked = rank if table.ranking and column in row.scores else None
        if row.source == "measured":
            lines.append(Line(ranked, None, row))
            continue
        place += 1
        lines += [Line(ranked, row, run) for run in runs.get(id(row), ())]
        if id(row) not in runs and place <= BEST:
            lines.append(Line(ranked, row, None))
    return [*lines, *(Line(None, None, row) for row in of_source.get("baseline", ()))]


def compact_table(table: ScoreTable, lines: Sequence[Line], notes: Sequence[str]) -> Table:
    """Return rank, method, paper, published score, your score, and your gain or the recipe that you can run.

    Columns without text are omitted.
    """
    column, shorts = table.shown_column, [papers.load(key).short for key in papers.names()]
    rows = []
    for line in lines:
        published, own = line.published, line.own
        numbers = "".join(note_numbers(row, notes) for row in (published, own) if row)
        name, paper, theirs, yours, last = "", "", "", "", Cell()
        if published is not None:
            name, theirs = published.name, published.scores[column].text()
            found = [short for short in shorts if any(one.startswith(f"{short} ") for one in published.reported_in)]
            paper = f"{found[0]} +{len(found) - 1}" if len(found) > 1 else "".join(found)
            last = Cell(published.recipe or "")
        if own is not None:
            name = (own.name if own.source != "measured" else name or own.recipes) + configuration_text(own)
            score = own.scores.get(column, EMPTY)
            if score is not EMPTY:
                yours = score.text() + ("" if score.std is None else f" ±{score.std_text()}")
            gain = [score.difference_text(), counted(len(own.seeds), "seed")] if own.source == "measured" else []
            last = Cell(", ".join(filter(None, gain)), strong=bool(gain) and score.significant)
        rank = "" if line.rank is None else str(line.rank)
        cells = (Cell(name + numbers), Cell(paper), Cell(theirs), Cell(yours), last)
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


def print_compact(tables: Sequence[ScoreTable], others: Sequence[str] = (), *, notes: bool = False) -> None:
    """Print tables on stdout, with the notes on the rows that they show.

    Args:
        tables: Tables to print.
        others: Encoders with published rows that are not printed.
        notes: Whether to print the notes on all rows, and the remarks on the tables, too.
    """
    lines = [shown_lines(table) for table in tables]
    shown = []
    for table, of_table in zip(tables, lines, strict=True):  # the rows of these lines with the scores that they show
        for row in {id(row): row for line in of_table for row in (line.published, line.own) if row}.values():
            score = row.scores.get(table.shown_column, EMPTY)
            if row.source in PUBLISHED:
                score = score.model_copy(update={"std": None})
            shown.append(row.model_copy(update={"scores": {table.shown_column: score}}))
    listed = notes_of([*shown, *rows_of(tables)] if notes else shown)
    with stdout_console(WIDTH) as console:
        for table, of_table in zip(tables, lines, strict=True):
            total = sum(row.source in PUBLISHED for row in table.rows)
            count = len({id(line.published) for line in of_table if line.published is not None})
            below = [f"{count} of {total} published rows"] if count < total else []
            below += remarks(table) if notes else []
            _print(console, table, compact_table(table, of_table, listed), below)
        ends = [*numbered(listed), *legend_lines(shown, "bold" if console.is_terminal else "")]
        if any(line.own is None for of_table in lines for line in of_table):
            ends.append("To reproduce a row: cse run RECIPE --seeds 5.")
        ends.append("All rows and columns: --wide. All notes: --notes.")
        if others:
            ends.append(f"Other encoders: --encoder {', '.join(others)}.")
        for text in ends:
            console.print(Text(text))


def to_markdown(tables: Sequence[ScoreTable]) -> str:
    """Return GitHub tables with remarks and legend."""
    parts: list[str] = []
    for table in tables:
        parts += [f"### {escape_markdown(table.heading)}", as_markdown(text_table(table))]
        parts += ["  \n".join(map(escape_markdown, remarks(table)))]
    legend = "  \n".join(map(escape_markdown, legend_lines(rows_of(tables))))
    return "\n\n".join(filter(None, [*parts, legend])) + "\n"


def to_latex(tables: Sequence[ScoreTable]) -> str:
    """Return a `table` environment for each table. It requires the package booktabs."""
    legend = legend_lines(rows_of(tables))
    every = (as_latex(text_table(table), [*remarks(table), *legend]) for table in tables)
    return "\n".join(["% \\usepackage{booktabs}", *every]) + "\n"


def to_csv(tables: Sequence[ScoreTable]) -> str:
    """Return one line for each cell, with full precision and the fields of JSON."""
    return as_csv([(*_TABLE, *_ROW, "column", *_SCORE), *(cell for one in tables for cell in _cells(one))])


_TABLE = ("kind", "encoder", "study")
_OTHER = ("recipe", "copies", "scores", "step", "seconds")
"""Fields of a row that CSV lacks: `recipes` has the first two, each score is a line, and only tables of seeds have the
last two. The columns have the order of the fields."""
_ROW = ["recipes", *(name for name in ScoreRow.model_fields if name not in _OTHER)]
_SCORE = ["difference", *Score.model_fields]


def _cells(table: ScoreTable) -> Iterator[list[object]]:
    for row in table.rows:
        about = [getattr(table, name) for name in _TABLE]
        about += [getattr(row, name) or getattr(table, name, None) for name in _ROW]
        for column, score in row.scores.items():
            values = [*about, column, *(getattr(score, name) for name in _SCORE)]
            yield ["; ".join(map(str, value)) if isinstance(value, tuple) else value for value in values]


def to_json(tables: Sequence[ScoreTable]) -> str:
    """Return one JSON document."""
    plain = [table.model_dump(mode="json") for table in tables]
    return console.to_json({"tables": plain}, SCHEMA_VERSION)


WRITERS: dict[str, Callable[[Sequence[ScoreTable]], str]] = {
    "md": to_markdown, "csv": to_csv, "json": to_json, "latex": to_latex
}  # fmt: skip


def write_page(tables: Sequence[ScoreTable], path: Path) -> None:
    """Write the Markdown tables as one self-contained page, and replace an existing file atomically."""
    from cse_cli.analysis.pages import page  # imports Jinja

    text = page("Leaderboard", f"# Leaderboard\n\n{to_markdown(tables) if tables else 'No finished run matches.'}")
    try:
        path.parent.stat()  # a missing directory is an error and is not created
        write_atomically(path, text)
    except OSError as error:
        raise CseError(
            f"--html '{path}': cannot write the file: {error.strerror}",
            "use a file in an existing directory",
            code="leaderboard.cannot_write",
        ) from error
