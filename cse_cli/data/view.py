"""What `cse data` and `cse check --data` print: a table in a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, as_tsv, plain_table
from cse_cli.data.inventory import Checked, DatasetState

if TYPE_CHECKING:  # imports torch, which listing does without
    from cse_cli.data.pack import Packed
    from cse_cli.data.requirements import Availability
    from cse_cli.data.translate import Translation


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


def print_availability(found: Sequence[Availability]) -> None:
    """Print a row a requirement: what it is, whether it is here, its size, where from, its licence, what needs it.

    In a terminal licences stand below the table, each once.
    """
    if sys.stdout.isatty():
        _print_short(found)
        return
    rows = [
        (
            one.requirement.title, one.state, decimal(one.bytes) if one.bytes else "-", one.origin or "-",
            one.licence or "-", ", ".join(one.requirement.wanted_by) or "-",
        )
        for one in found
    ]  # fmt: skip
    _print(("what", "state", "to fetch", "where", "licence", "wanted by"), rows)


def _print_short(found: Sequence[Availability]) -> None:
    rows: list[tuple[str, ...]] = []
    licences: dict[str, list[str]] = {}
    for one in found:
        size = decimal(one.bytes) if one.bytes else "-"
        rows.append((one.requirement.title, one.state, size, one.origin or "-"))
        licences.setdefault(one.licence or "no licence is known", []).append(one.requirement.name)
    with stdout_console() as console:
        console.print(as_rich(plain_table(("what", "state", "to fetch", "where"), rows, align="llrp")))
        console.print(Text("\nlicences", "bold"))
        for licence, names in licences.items():
            console.print(Text(f"{', '.join(dict.fromkeys(names))}: {licence}"))


def print_plan(found: Sequence[Availability]) -> None:
    """Say on stderr what is about to be downloaded: sizes, licences, and how much it is."""
    from cse_cli.data.requirements import download_size

    wanted = [one for one in found if one.state == "fetchable"]
    if not wanted or any(one.state == "missing" for one in found):
        return  # nothing to fetch, or an error follows that says what cannot be had
    console = Console(stderr=True, highlight=False)
    console.print(Text(f"to download: {download_size(wanted)}"), soft_wrap=not console.is_terminal)
    for one in wanted:
        terms = ", ".join(filter(None, (decimal(one.bytes) if one.bytes else "", one.licence)))
        line = f"  {one.requirement.title}{f': {terms}' if terms else ''}"
        console.print(Text(line), soft_wrap=not console.is_terminal)


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


def print_packed(packed: Packed, next_command: str) -> None:
    """Print what an archive holds and what to do with it."""
    old = f", {packed.skipped} of them already there" if packed.skipped else ""
    sys.stderr.write(f"{len(packed.names)} files, {decimal(packed.bytes)}{old}\n")
    if next_command:
        sys.stderr.write(f"next: {next_command}\n")
    sys.stdout.write(f"{packed.archive}\n")


def print_translation(made: Translation) -> None:
    """Print what was written and how a recipe uses it."""
    reused = f", {made.reused:,} of them translated before or repeated" if made.reused else ""
    shards = "" if made.file == str(made.output) else f"written to {made.output}; when all shards are there, "
    sys.stderr.write(f"{made.rows:,} rows{reused}; {shards}in a recipe:\n")
    sys.stdout.write(f"[data]\nfile = {json.dumps(made.file, ensure_ascii=False)}\n")


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = plain_table(header, rows)
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(table))
        return
    with stdout_console() as console:
        console.print(as_rich(table))
