"""Data sets and their state on this machine (`cse data`, `cse check --data`), and the tables that print it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, as_tsv, plain_table
from registry.errors import CseError, MissingError
from registry.resources import catalog
from registry.resources.catalog import DatasetEntry

if TYPE_CHECKING:  # imports torch, which `cse data list` does not need
    from cse_cli.data.requirements import Availability


def dataset_states() -> list[dict[str, Any]]:
    """Return all data sets with the state of their splits, sorted by kind, language and name, without the network.

    A split is in "package", "CSE_DATA" or "cache", or it is "generated", "fetchable" or "missing".
    """
    entries = sorted(map(catalog.entry, catalog.names()), key=lambda e: (e.kind, e.language, e.name))
    keys = ("name", "title", "kind", "language", "license", "citation", "note")
    return [
        {
            **{key: getattr(about, key) for key in keys},
            "sources": [remote.where for remote in about.sources.values()],
            "splits": [_split_state(about, name) for name in about.splits],
        }
        for about in entries
    ]


def _split_state(about: DatasetEntry, name: str) -> dict[str, Any]:
    state = catalog.state(about.name, name)
    found: dict[str, Any] = {"name": name, "rows": about.splits[name].rows, "columns": about.columns_of(name)}
    if state.origin is not None:
        return found | {"where": state.origin, "path": state.path or None}
    states = [catalog.state(*root) for root in catalog.roots(about.name, name)]
    fetchable = all(one.origin is not None or one.sources for one in states)
    return found | {"where": "fetchable" if fetchable else "missing", "path": None}


def check_datasets(names: Sequence[str]) -> list[dict[str, Any]]:
    """Read every split of the named data sets and download missing ones. Without names, read all local data sets.

    A split that could not be read has None as `rows` and `digest`. `expected` is the number of rows in the catalog.
    """
    entries = [catalog.entry(name) for name in names or catalog.names()]
    return [_check_split(about, split, download=bool(names)) for about in entries for split in about.splits]


def _check_split(about: DatasetEntry, split: str, download: bool) -> dict[str, Any]:
    found = catalog.find(about.name, split)
    checked: dict[str, Any] = {
        "dataset": about.name, "split": split, "where": found[0] if found else "missing",
        "expected": about.splits[split].rows, "rows": None, "columns": (), "digest": None, "problem": None,
        "exit_code": 0,
    }  # fmt: skip
    if found is None and not download:
        return checked
    try:
        checked["where"] = found[0] if found else "fetchable"
        source = found[1] if found else catalog.locate(about.name, split)
        checked["where"] = found[0] if found else "cache"
        if about.columns_of(split) == catalog.PAIR_COLUMNS:
            counted = len(catalog.read_pairs(about.name, split))
        else:
            counted = source.check(sum(1 for _ in source.rows()))
        _, digest = source.scanned
    except CseError as error:
        where = "missing" if isinstance(error, MissingError) else checked["where"]
        return checked | {"where": where, "problem": str(error), "exit_code": error.exit_code}
    checked |= {"rows": counted, "columns": source.columns, "digest": digest}
    if not source.known:
        problem = f"{source.where}: the SHA-256 of the rows is {digest}, expected {source.sha256}"
        checked |= {"problem": problem, "exit_code": 2}
    return checked


STATUS = {"here": "available", "fetchable": "to download", "missing": "missing"}
"""Status of a requirement in tables, by its state."""


def print_datasets(states: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per data set: kind, language, rows of each split, and location."""
    rows = []
    for state in states:
        splits = " ".join(f"{split['name']}:{split['rows']}" for split in state["splits"])
        wheres = dict.fromkeys(split["where"] for split in state["splits"])
        rows.append((state["name"], state["kind"], state["language"], splits, "+".join(wheres), state["title"]))
    _print(("name", "kind", "language", "splits", "location", "title"), rows)


def print_checked(checked: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per split: number of rows, location and digest. Problems follow on stderr."""
    rows = []
    for one in checked:
        status = "missing" if one["where"] == "missing" else "wrong" if one["problem"] else "ok"
        counted = "-" if one["rows"] is None else str(one["rows"])
        digest = (one["digest"] or "-")[:16]
        rows.append((one["dataset"], one["split"], status, counted, str(one["expected"]), one["where"], digest))
    _print(("dataset", "split", "status", "rows", "expected", "location", "digest"), rows)
    sys.stderr.writelines(f"error: {one['problem']}\n" for one in checked if one["problem"])


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


def print_downloads(found: Sequence[Availability]) -> None:
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
