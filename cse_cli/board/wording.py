"""What tables of the leaderboard say in words: labels, trends, what is missing, what the marks mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cse_cli.board.shape import Block, Missing, Row, Trend
from cse_cli.spread import LEGEND, SYMBOLS, Mark, Score

POSITIONS: tuple[Mark, ...] = ("within", "above", "below")
"""Marks of a difference; the others are doubts about the number itself."""
SPREAD = "±: sample standard deviation over the seeds, in a paper's row as printed"
NAMED = 6
"""Missing cells told by name."""


def label(row: Row, block: Block, *, places: bool = True) -> str:
    """Return what stands before a row's numbers.

    Args:
        row: The row.
        block: The table it stands in.
        places: Say where it is printed, too.
    """
    if row.source != "ours":
        where = f" · {', '.join(row.printed)}" if block.kind == "encoder" and row.printed and places else ""
        return row.name + (where if row.source in ("paper", "field") else "")
    settings = f" {', '.join(row.settings)}" if row.settings else ""
    best = f" (best of {row.configurations})" if row.configurations > 1 else ""
    if block.kind == "encoder":
        return f"{row.recipe}{settings}{best}"
    return f"ours: {row.recipe}{settings}, {row.model}"


def compared(row: Row) -> str:
    """Return what a row's differences are to."""
    return f"to {row.answers}" if row.answers else "to before training"


def remarks(block: Block) -> list[str]:
    """Return what stands below a table, besides the rows' notes."""
    doubts = block.remarks if block.kind == "encoder" else [f"whole table: {remark}" for remark in block.remarks]
    return [*doubts, *map(trend, block.trends), *missing(block.missing, block.command)]


def trend(one: Trend) -> str:
    """Return one trend as a sentence."""
    if one.rho is None or one.p is None:
        return f"trend, {one.along}: none can be told, one side is constant over {one.n} cells"
    how = "exact" if one.exact else "approximate"
    rho = f"{one.rho:+.2f}".replace("-", "−")
    return f"trend, {one.along}: rank correlation of ours with the paper's {rho} (n = {one.n}, p = {one.p:.2g}, {how})"


def missing(cells: Sequence[Missing], command: str | None) -> list[str]:
    """Return which cells lack runs, and the command that makes them."""
    if command is None:
        return []
    none = [_cell(cell) for cell in cells if not cell.seeds]
    few = [f"{_cell(cell)} ({cell.seeds} of {cell.wanted} seeds)" for cell in cells if cell.seeds]
    if not none and not few:
        return [f"no runs yet: {command}"]
    told = [f"{_short(none)} without runs"] if none else []
    told += [_short(few)] if few else []
    return [f"missing, {command}: {'; '.join(told)}"]


def _cell(cell: Missing) -> str:
    return f"{cell.row} · {', '.join(cell.columns)}" if cell.columns else cell.row


def _short(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def legend(blocks: Iterable[Block], strong: str) -> list[str]:
    """Return a line for each mark that occurs, and for the spread.

    Args:
        blocks: The tables.
        strong: How this format shows that a difference is significant.
    """
    scores = [score for block in blocks for row in block.rows for score in row.scores.values()]
    used = {mark for score in scores for mark in score.marks}
    lines = [f"{SYMBOLS[mark]} {LEGEND[mark]}" for mark in SYMBOLS if mark in used]
    if any(score.std is not None for score in scores):
        lines.insert(0, SPREAD)
    if strong and any(score.significant for score in scores):
        lines.append(f"{strong}: only where above or below the spread")
    return lines


def mean(score: Score) -> str:
    """Return a number with the doubts about it."""
    return f"{score.mean:.{score.digits}f}{symbols(score, doubts=True)}"


def difference(score: Score) -> str:
    """Return a signed difference with its mark; nothing where there is none."""
    if score.difference is None:
        return ""
    return f"{score.difference:+.{score.digits}f}".replace("-", "−") + symbols(score, doubts=False)


def symbols(score: Score, *, doubts: bool) -> str:
    """Return the marks of a number itself, or of its difference."""
    return "".join(SYMBOLS[mark] for mark in score.marks if (mark not in POSITIONS) == doubts)
