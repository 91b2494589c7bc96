"""A paper's table in its own layout, with the runs of the recipes that answer its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cse_cli.board import ours
from cse_cli.board.printed import Printed
from cse_cli.board.runs import Configuration
from cse_cli.board.shape import Block, Row
from registry import papers


def heading(key: str, identifier: str) -> str:
    """Return what stands above a paper's table."""
    paper = papers.load(key)
    table = paper.tables[identifier]
    return f"{paper.short}, {table.title} ({identifier}): {table.caption} [{table.metric}]"


def remarks(key: str, identifier: str) -> tuple[str, ...]:
    """Return the doubts about a whole table."""
    return tuple(flag.note for flag in papers.load(key).tables[identifier].flags if flag.row is None)


def answered(
    key: str, identifier: str, ran: Sequence[Configuration], beside: Collection[str] = ()
) -> tuple[Block, bool]:
    """Return a paper's table and whether any of our runs stands in it.

    Args:
        key: The paper.
        identifier: The table.
        ran: Our runs.
        beside: Hashes of experiments that stand in another table already.
    """
    paper = papers.load(key)
    table = paper.tables[identifier]
    lines: list[Row] = []
    found = False
    for name in table.rows:
        printed = Printed(paper, identifier, name)
        shown = printed.line()
        lines.append(shown)
        for configuration in ran:
            if _answers(configuration, printed) and configuration.latest.recipe_hash not in beside:
                lines.append(_our_line(configuration, printed, shown))
                found = True
    return _block(key, identifier, lines), found


def _block(key: str, identifier: str, lines: Iterable[Row]) -> Block:
    table = papers.load(key).tables[identifier]
    return Block(
        kind="table",
        heading=heading(key, identifier),
        language=table.language,
        paper=key,
        table=identifier,
        columns=tuple(column.name for column in table.columns),
        rows=tuple(lines),
        remarks=remarks(key, identifier),
    )


def _our_line(configuration: Configuration, printed: Printed, shown: Row) -> Row:
    scores = ours.beside_printed(configuration, printed.table, shown)
    place = {"paper": printed.paper.key, "table": printed.identifier, "answers": printed.name}
    return ours.line(configuration, scores).model_copy(update=place)


def _answers(configuration: Configuration, printed: Printed) -> bool:
    """Tell whether a run stands beside a printed row: its own, or another one of the paper its recipe answers too."""
    asked = configuration.latest.paper
    if asked is None or asked.key != printed.paper.key:
        return False
    own = (asked.table, asked.row) == (printed.identifier, printed.name)
    return own or (printed.recipe is not None and printed.recipe == configuration.recipe)
