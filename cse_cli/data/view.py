"""Output of `cse data` and `cse check --data`: a table in a terminal, and tab-separated lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, as_tsv, plain_table
from cse_cli.data.inventory import CheckedSplit, DatasetState

if TYPE_CHECKING:  # imports torch, which `cse data list` does not need
    from cse_cli.data.requirements import Availability


STATUS = {"here": "available", "fetchable": "to download", "missing": "missing"}
"""Status of a requirement in tables, by its state."""


def print_datasets(states: Sequence[DatasetState]) -> None:
    """Print one row per data set: kind, language, rows of each split, and location."""
    rows = []
    for state in states:
        splits = " ".join(f"{split.name}:{split.rows}" for split in state.splits)
        wheres = dict.fromkeys(split.where for split in state.splits)
        rows.append((state.name, state.kind, state.language, splits, "+".join(wheres), state.title))
    _print(("name", "kind", "language", "splits", "location", "title"), rows)


def print_checked(checked: Sequence[CheckedSplit]) -> None:
    """Print one row per split: number of rows, location and digest. Problems follow on stderr."""
    rows = []
    for one in checked:
        status = "missing" if one.where == "missing" else "wrong" if one.problem else "ok"
        counted = "-" if one.rows is None else str(one.rows)
        rows.append((one.dataset, one.split, status, counted, str(one.expected), one.where, (one.digest or "-")[:16]))
    _print(("dataset", "split", "status", "rows", "expected", "location", "digest"), rows)
    for one in checked:
        if one.problem:
            sys.stderr.write(f"error: {one.problem}\n")


def print_availability(found: Sequence[Availability]) -> None:
    """Print one row per requirement. In a terminal, licenses follow below the table."""
    rows: list[tuple[str, ...]] = []
    licenses: dict[str, list[str]] = {}
    for one in found:
        size = decimal(one.bytes) if one.bytes else "-"
        rows.append((one.requirement.title, STATUS[one.state], size, one.origin or "-"))
        licenses.setdefault(one.license or "unknown license", []).append(one.requirement.name)
    header = ("requirement", "status", "download size", "source")
    if not sys.stdout.isatty():
        more = [(one.license or "-", ", ".join(one.requirement.wanted_by) or "-") for one in found]
        _print((*header, "license", "required by"), [(*row, *last) for row, last in zip(rows, more, strict=True)])
        return
    with stdout_console() as console:
        console.print(as_rich(plain_table(header, rows, align="llrp")))
        console.print(Text("\nlicenses", "bold"))
        for license, names in licenses.items():
            console.print(Text(f"{', '.join(dict.fromkeys(names))}: {license}"))


def print_plan(found: Sequence[Availability]) -> None:
    """Print the downloads that follow, with sizes and licenses, to stderr."""
    from cse_cli.data.requirements import download_size

    fetched = [one for one in found if one.state == "fetchable"]
    if not fetched or any(one.state == "missing" for one in found):
        return  # an error message follows
    console = Console(stderr=True, highlight=False)
    console.print(Text(f"downloading {download_size(fetched)}:"), soft_wrap=not console.is_terminal)
    for one in fetched:
        terms = ", ".join(filter(None, (decimal(one.bytes) if one.bytes else "", one.license)))
        line = f"  {one.requirement.title}{f': {terms}' if terms else ''}"
        console.print(Text(line), soft_wrap=not console.is_terminal)


def print_requirements(found: Sequence[Availability]) -> None:
    """Print one row per requirement, then the download size and what to do about missing ones."""
    from cse_cli.data.requirements import download_size

    print_availability(found)
    for one in found:
        if one.state == "missing":
            sys.stderr.write(f"missing: {one.requirement.title}: {one.problem}\n  → {one.action}\n")
    counts = [f"{sum(one.state == state for one in found)} {status}" for state, status in STATUS.items()]
    size = download_size(found)
    sys.stderr.write(f"{', '.join(counts)}{f'; download size: {size}' if size else ''}\n")


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = plain_table(header, rows)
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(table))
        return
    with stdout_console() as console:
        console.print(as_rich(table))
