"""The field's public hand-kept leaderboard, `field_leaderboard.tsv`: what other methods print, encoder by encoder."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "field_leaderboard.tsv"


@dataclass(frozen=True)
class FieldRow:
    """One method on one encoder.

    Args:
        encoder: As the list says it, such as "BERT-base".
        method: As the list says it.
        cells: Evaluator → Spearman × 100.
        spreads: Evaluator, or "avg" → ± as listed; empty where none is.
        avg: As listed.
        avg_recomputed: Mean of the cells.
        note: What is doubtful about the row.
    """

    encoder: str
    method: str
    cells: dict[str, float]
    spreads: dict[str, float]
    avg: float
    avg_recomputed: float
    note: str = ""


@cache
def field() -> tuple[FieldRow, ...]:
    """Return the rows in the list's order: by encoder, then by average."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return tuple(_row(line) for line in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def source() -> str:
    """Return where the list comes from: the head of the file."""
    return "\n".join(_head())


def _head() -> Iterator[str]:
    with _FILE.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                return
            yield line.removeprefix("#").strip()


def _row(line: dict[str, str]) -> FieldRow:
    encoder, method, note = line.pop("encoder"), line.pop("method"), line.pop("note") or ""
    avg, _, spread = line.pop("avg").partition("±")
    scores = {name: cell.partition("±") for name, cell in line.items()}
    cells = {name: float(value) for name, (value, _, _) in scores.items()}
    spreads = {name: float(std) for name, (_, sign, std) in scores.items() if sign}
    return FieldRow(
        encoder=encoder,
        method=method,
        cells=cells,
        spreads=spreads | ({"avg": float(spread)} if spread else {}),
        avg=float(avg),
        avg_recomputed=round(sum(cells.values()) / len(cells), 2),
        note=note,
    )
