"""The leaderboard as a terminal table, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.leaderboard import SCHEMA_VERSION, Row
from cse_cli.spread import Score
from registry import papers

_LEGEND = (
    "n seeds: their mean, sample standard deviation and difference; {} marks a difference larger than the seeds' "
    "spread explains (t test, 95 %)"
)


def as_table(lines: Sequence[Row]) -> str:
    """Return tables for a terminal; plain, wide and unwrapped where stdout is none."""
    terminal = sys.stdout.isatty()
    text = io.StringIO()
    width = shutil.get_terminal_size().columns if terminal else 10_000
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    for heading, remarks, block in _blocks(lines):
        console.print(f"[bold]{escape(heading)}[/bold]\n")
        console.print(_rich_table(block))
        for number, note in enumerate(_notes(block), 1):
            console.print(escape(f"[{number}] {note}"))
        for remark in remarks:
            console.print(escape(f"whole table: {remark}"))
        console.print()
    console.print(escape(_LEGEND.format("*")))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n"))


def as_markdown(lines: Sequence[Row]) -> str:
    """Return GitHub tables."""
    out: list[str] = []
    for heading, remarks, block in _blocks(lines):
        notes = _notes(block)
        header = ["", "n", *block[0].columns]
        out += [f"### {heading}", "", _md(header), _md(["---", *["---:"] * (len(header) - 1)])]
        for row in block:
            out += [_md([label.replace("|", "\\|"), *cells]) for label, *cells in _lines(row, notes, "**{}**")]
        out += ["", *(f"[{number}] {note}  " for number, note in enumerate(notes, 1))]
        out += [*(f"whole table: {remark}  " for remark in remarks), ""]
    return "\n".join([*out, _LEGEND.format("bold"), ""])


def as_csv(lines: Sequence[Row]) -> str:
    """Return one line a cell, full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    for row in lines:
        for column, score in row.scores.items():
            about = (row.paper, row.table, row.source, row.name, row.answers, row.recipe, row.recipe_hash, row.model)
            numbers = (score.n, score.mean, score.std, score.reference, score.difference, score.significant)
            writer.writerow([*about, row.language, column, *numbers, "; ".join(row.notes)])
    return text.getvalue()


_CSV = (
    "paper", "table", "source", "name", "answers", "recipe", "recipe_hash", "model", "language", "column",
    "n", "mean", "std", "reference", "difference", "significant", "notes",
)  # fmt: skip


def as_json(lines: Sequence[Row]) -> str:
    """Return one document."""
    plain: list[dict[str, Any]] = []
    for row in lines:
        table = row.model_dump(mode="json")
        for column, score in row.scores.items():
            table["scores"][column]["difference"] = score.difference
        plain.append(table)
    document = {"schema_version": SCHEMA_VERSION, "rows": plain}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


FORMATS = {"table": as_table, "md": as_markdown, "csv": as_csv, "json": as_json}


def _blocks(lines: Sequence[Row]) -> Iterator[tuple[str, list[str], list[Row]]]:
    """Yield heading, remarks and lines of each table; runs without a paper share one where they share columns."""
    blocks: dict[tuple[str | None, str | None, tuple[str, ...], str | None], list[Row]] = {}
    for row in lines:
        language = None if row.paper else row.language
        blocks.setdefault((row.paper, row.table, row.columns, language), []).append(row)
    for (paper, table, _, language), block in blocks.items():
        if paper is None or table is None:
            yield f"Not comparable with a paper ({language})", [], block
        else:
            printed = papers.load(paper)
            about = printed.tables[table]
            remarks = [flag.note for flag in about.flags if flag.row is None]
            yield f"{printed.short}, Table {about.number} ({table}): {about.caption} [{about.metric}]", remarks, block


def _notes(block: Sequence[Row]) -> list[str]:
    """Return every note of a table once, in order of appearance: its number is its place."""
    return list(dict.fromkeys(note for row in block for note in row.notes))


def _label(row: Row, notes: Sequence[str]) -> str:
    about = {"paper": row.name, "ours": f"ours: {row.recipe}, {row.model}", "untrained": row.name}[row.source]
    if row.source == "ours" and row.paper is None:
        about = f"{row.name} ({row.recipe}, {row.model})"
    return about + "".join(f" [{notes.index(note) + 1}]" for note in row.notes)


def _lines(row: Row, notes: Sequence[str], strong: str) -> Iterator[list[str]]:
    """Yield the cells of a row, of its spread and of its differences: short ones, so that a table stays narrow."""
    scores = [row.scores.get(column) for column in row.columns]
    yield [_label(row, notes), str(len(row.seeds) or ""), *(f"{s.mean:.2f}" if s else "" for s in scores)]
    if row.source == "ours" and any(s and s.std is not None for s in scores):
        yield ["± over seeds", "", *(f"{s.std:.2f}" if s and s.std is not None else "" for s in scores)]
    if any(s and s.reference is not None for s in scores):
        yield ["difference", "", *(_difference(s, strong) for s in scores)]


def _difference(score: Score | None, strong: str) -> str:
    """Return the signed difference; `strong` is put around it only where it is significant."""
    if score is None or score.difference is None:
        return ""
    number = f"{score.difference:+.2f}".replace("-", "−")
    return strong.format(number) if score.significant else number


def _rich_table(block: Sequence[Row]) -> Table:
    notes = _notes(block)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in ("n", *block[0].columns):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in block:
        for number, (label, *cells) in enumerate(_lines(row, notes, "[bold]{}*[/bold]")):
            indent = "  " if number else ""
            table.add_row(indent + escape(label), *cells, style="cyan" if row.source == "ours" else None)
    return table


def _md(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
