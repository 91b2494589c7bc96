"""Which printed tables a name on the command line means."""

from __future__ import annotations

from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import PaperTables


def find_tables(paper: str | None, table: str | None) -> list[tuple[str, str]]:
    """Return paper and identifier of the tables that are meant, in printed order.

    Args:
        paper: Key; None is any.
        table: "ifcl/5" by its number, "ifcl/queue_length" by its identifier, or a bare identifier; None is all.

    Raises:
        UnknownNameError: There is none; the message suggests the nearest.
        CseError: It is a figure, or the two name different papers.
    """
    if table is not None and "/" in table:
        key, _, name = table.partition("/")
        if paper not in (None, key):
            raise CseError(f"--paper {paper} and --table {table} are of different papers", "leave --paper out")
        return [(key, identifier) for identifier in _of_paper(papers.load(key), name)]
    every = [(key, one) for key in ([paper] if paper else papers.names()) for one in papers.load(key).tables]
    if table is None:
        return every
    if not (named := [(key, one) for key, one in every if one == table]):
        known = [one for _, one in every]
        raise UnknownNameError(
            f"unknown table '{table}'.{suggestion(table, known)}",
            f"`--table ifcl/5` means it by its number; known: {', '.join(dict.fromkeys(known))}",
        )
    return named


def check_names(paper: str | None, table: str | None) -> None:
    """Refuse a paper or table that does not exist.

    Raises:
        CseError: It does not; the message suggests the nearest.
    """
    find_tables(paper, table)


def _of_paper(paper: PaperTables, name: str) -> list[str]:
    numbered = [
        identifier for identifier, table in paper.tables.items() if name.isdigit() and table.number == int(name)
    ]
    if found := numbered or [identifier for identifier in paper.tables if identifier == name]:
        return found
    if figure := paper.figures.get(name):
        draws = ", ".join(f"`cse run {answer.text}`" for answer in figure.answers if answer.kind != "reason")
        raise CseError(
            f"'{paper.key}/{name}' is a figure ({paper.short}, Figure {figure.number}), not a table",
            f"{draws} draws ours" if draws else figure.unanswered,
        )
    known = [*paper.tables, *(str(table.number) for table in paper.tables.values() if table.number is not None)]
    raise UnknownNameError(
        f"unknown table '{name}' of {paper.short}.{suggestion(name, known)}",
        f"known: {', '.join(dict.fromkeys(known))}",
    )
