"""The settings behind the rows of the papers' ablation and sweep tables, from `ablations.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Setting:
    """What one printed number, or several of one run, were computed with.

    Args:
        paper: Key of the paper.
        table: Key of its table.
        row: Row of the table.
        columns: Columns that this run scores.
        recipe: What `cse run` takes.
        set: `--set`, in order.
        unset: `--unset`.
    """

    paper: str
    table: str
    row: str
    columns: tuple[str, ...]
    recipe: str
    set: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a test or a table calls it."""
        return " · ".join(filter(None, (f"{self.paper}.{self.table}", self.row, ", ".join(self.columns))))


def settings(*, mini: bool = False) -> list[Setting]:
    """Return every setting, in printed order.

    Args:
        mini: Of the recipes for the project's small encoders instead.
    """
    with FILE.open("rb") as file:
        tables = tomllib.load(file)["tables"]
    return [
        _setting(table, row, column, mini=mini)
        for table in tables
        for row in table["rows"]
        for column in table.get("columns", [{"names": []}])
    ]


def _setting(table: dict[str, Any], row: dict[str, Any], column: dict[str, Any], *, mini: bool) -> Setting:
    recipe = column.get("recipe") or row.get("recipe") or table["recipe"]
    said = [table, row, column]
    if mini:
        recipe = next((part["mini"] for part in reversed(said) if "mini" in part), f"mini/{recipe}")
    keys = {name: (name, f"{'mini' if mini else 'full'}_{name}") for name in ("set", "unset")}
    lists = {name: [text for part in said for key in keys[name] for text in part.get(key, [])] for name in keys}
    return Setting(
        paper=table["paper"],
        table=table["table"],
        row=row["row"],
        columns=tuple(column["names"]),
        recipe=recipe,
        set=tuple(lists["set"]),
        unset=tuple(lists["unset"]),
    )
