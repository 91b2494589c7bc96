"""The leaderboard as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from cse_cli.board import latex, wording
from cse_cli.board.grid import Line, grid
from cse_cli.board.shape import SCHEMA_VERSION, Block

as_latex = latex.as_latex

_CSV = (
    "kind", "encoder", "language", "paper", "table", "study", "source", "name", "printed", "answers", "recipe",
    "recipe_hash", "settings", "model", "column", "n", "mean", "std", "reference", "difference", "significant", "marks",
    "implied", "notes",
)  # fmt: skip


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return GitHub tables."""
    out: list[str] = []
    for block in blocks:
        shown = grid(block)
        header = ["", *shown.headings]
        out += [f"### {block.heading}", "", _md(header), _md(["---", *["---:"] * len(shown.headings)])]
        out += [_md(_md_cells(line)) for line in shown.lines]
        out += ["", *(f"[{number}] {note}  " for number, note in enumerate(shown.notes, 1))]
        out += [*(f"{remark}  " for remark in wording.remarks(block)), ""]
    return "\n".join([*out, *(f"{line}  " for line in wording.legend(blocks, "bold")), ""])


def _md_cells(line: Line) -> list[str]:
    return [line.label, *(f"**{cell.text}**" if cell.strong else cell.text for cell in line.cells)]


def _md(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def as_csv(blocks: Sequence[Block]) -> str:
    """Return one line a cell, full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    for block in blocks:
        for row in block.rows:
            place = (block.kind, block.encoder, row.language or block.language, row.paper or block.paper)
            about = (row.table or block.table, block.study, row.source, row.name, "; ".join(row.printed), row.answers)
            recipe = (row.recipe, row.recipe_hash, "; ".join(row.settings), row.model)
            for column, score in row.scores.items():
                numbers = (score.n, score.mean, score.std, score.reference, score.difference, score.significant)
                marks = ("; ".join(score.marks), score.implied, "; ".join(row.notes))
                writer.writerow([*place, *about, *recipe, column, *numbers, *marks])
    return text.getvalue()


def as_json(blocks: Sequence[Block]) -> str:
    """Return one document."""
    tables = []
    for block in blocks:
        table = block.model_dump(mode="json")
        for row, plain in zip(block.rows, table["rows"], strict=True):
            for column, score in row.scores.items():
                plain["scores"][column]["difference"] = score.difference
        tables.append(table)
    return json.dumps({"schema_version": SCHEMA_VERSION, "tables": tables}, ensure_ascii=False, indent=2) + "\n"
