"""Data sets on stdout: tables in a terminal, tab-separated values in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from cse_cli.data.inventory import Checked, DatasetState

if TYPE_CHECKING:  # imports torch, which listing does without
    from cse_cli.data.pack import Packed
    from cse_cli.data.requirements import Availability
    from cse_cli.data.translate import Translation

SCHEMA_VERSION = 2


def print_datasets(states: Sequence[DatasetState]) -> None:
    """Print a row a data set: kind, language, rows of each split, and where they are."""
    rows = []
    for state in states:
        splits = " ".join(f"{split.name}:{split.rows}" for split in state.splits)
        wheres = dict.fromkeys(split.where for split in state.splits)
        rows.append((state.name, state.kind, state.language, splits, "+".join(wheres), state.title))
    _print(("name", "kind", "language", "splits", "where", "title"), rows)


def print_checked(checked: Sequence[Checked]) -> None:
    """Print a row a split: its count, where it is, its digest, and what is wrong."""
    rows = []
    for one in checked:
        state = "missing" if one.where == "missing" else "wrong" if one.problem else "ok"
        counted = "-" if one.rows is None else str(one.rows)
        rows.append((one.dataset, one.split, state, counted, str(one.expected), one.where, (one.digest or "-")[:16]))
    _print(("dataset", "split", "state", "rows", "expected", "where", "digest"), rows)
    for one in checked:
        if one.problem:
            sys.stderr.write(f"error: {one.problem}\n")


def write_datasets(states: Sequence[DatasetState]) -> None:
    """Write one JSON document of all entries."""
    _write({"datasets": [asdict(state) for state in states]})


def write_checked(checked: Sequence[Checked]) -> None:
    """Write one JSON document of all splits read."""
    _write({"splits": [asdict(one) for one in checked]})


def print_availability(found: Sequence[Availability]) -> None:
    """Print a row a requirement: what it is, whether it is here, its size, where from, its licence, who wants it."""
    rows = [
        (
            one.requirement.title, one.state, decimal(one.bytes) if one.bytes else "-", one.origin or "-",
            one.licence or "-", ", ".join(one.requirement.wanted_by) or "-",
        )
        for one in found
    ]  # fmt: skip
    _print(("what", "state", "to fetch", "where", "licence", "wanted by"), rows)


def print_requirements(found: Sequence[Availability]) -> None:
    """Print the same, then how much there is to download and what to do about the rest."""
    from cse_cli.data.requirements import download_size

    print_availability(found)
    for one in found:
        if one.state == "missing":
            sys.stderr.write(f"missing: {one.requirement.title}: {one.problem}\n  → {one.action}\n")
    counts = {state: sum(one.state == state for one in found) for state in ("here", "fetchable", "missing")}
    fetched = f" ({download_size(found)})" if counts["fetchable"] else ""
    sys.stderr.write(
        f"{counts['here']} here, {counts['fetchable']} to download{fetched}, {counts['missing']} missing\n"
    )


def write_availability(found: Sequence[Availability]) -> None:
    """Write one JSON document of all requirements."""
    _write({"requirements": [{**asdict(one), "paths": [str(path) for path in one.paths]} for one in found]})


def print_packed(packed: Packed, following: str) -> None:
    """Say what an archive holds and what to do with it."""
    old = f", {packed.skipped} of them already there" if packed.skipped else ""
    sys.stderr.write(f"{len(packed.names)} files, {decimal(packed.bytes)}{old}\n")
    if following:
        sys.stderr.write(f"next: {following}\n")
    sys.stdout.write(f"{packed.archive}\n")


def write_packed(packed: Packed, _: str) -> None:
    """Write one JSON document."""
    _write({**asdict(packed), "archive": str(packed.archive)})


def print_translation(made: Translation) -> None:
    """Say what was written and how a recipe uses it."""
    reused = f", {made.reused:,} of them translated before or repeated" if made.reused else ""
    shards = "" if made.file == str(made.output) else f"written to {made.output}; when all shards are there, "
    sys.stderr.write(f"{made.rows:,} rows{reused}; {shards}in a recipe:\n")
    sys.stdout.write(f"[data]\nfile = {json.dumps(made.file, ensure_ascii=False)}\n")


def print_interrupted() -> None:
    """Say that nothing is lost."""
    sys.stderr.write("stopped; the same command goes on from here\n")


def write_translation(made: Translation) -> None:
    """Write one JSON document."""
    _write({"output": str(made.output), "rows": made.rows, "reused": made.reused, "file": made.file})


def _write(document: dict[str, object]) -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, ensure_ascii=False)
    sys.stdout.write(text + "\n")


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        sys.stdout.write("".join("\t".join(cells) + "\n" for cells in [header, *rows]))
        return
    table = Table(box=None, pad_edge=False)
    for heading in header:
        table.add_column(heading, overflow="fold")
    for cells in rows:
        table.add_row(*map(escape, cells))
    console.print(table)
