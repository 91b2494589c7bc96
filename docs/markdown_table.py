"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def cell(text: str) -> str:
    """Return text that may stand in a cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
