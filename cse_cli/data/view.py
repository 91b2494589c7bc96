"""Data sets and their state on this machine (`cse data`, `cse check --data`), and the tables that print it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, as_tsv, plain_table
from registry.errors import CseError, MissingError
from registry.resources import catalog
from registry.resources.catalog import DatasetEntry

if TYPE_CHECKING:  # imports torch, which `cse data list` does not need
    from cse_cli.data.requirements import Availability


@dataclass(frozen=True)
class SplitState:
    """State of one split of a data set.

    Args:
        rows: Number of rows according to the catalog.
        where: "package", "CSE_DATA", "cache" (downloaded before), "generated", "fetchable" or "missing".
        path: Path of its files, or None if they are not on this machine.
    """

    name: str
    rows: int
    columns: tuple[str, ...]
    where: str
    path: str | None = None


@dataclass(frozen=True)
class DatasetState:
    """One catalog entry with the state of its splits. `sources` are in the order in which they are tried."""

    name: str
    title: str
    kind: str
    language: str
    license: str
    citation: str
    note: str
    sources: tuple[str, ...]
    splits: tuple[SplitState, ...]


@dataclass(frozen=True)
class CheckedSplit:
    """Result of reading one split completely. If it could not be read, `rows` and `digest` have the value None.

    Args:
        where: Location, as in `SplitState`.
        expected: Number of rows according to the catalog.
        rows: Number of rows found.
        digest: SHA-256 of the content.
        exit_code: Exit code for the problem.
    """

    dataset: str
    split: str
    where: str
    expected: int
    rows: int | None = None
    columns: tuple[str, ...] = ()
    digest: str | None = None
    problem: str | None = None
    exit_code: int = 0


def dataset_states() -> list[DatasetState]:
    """Return the state of all data sets, sorted by kind, language and name. The network is not used."""
    entries = sorted(map(catalog.entry, catalog.names()), key=lambda e: (e.kind, e.language, e.name))
    return [
        DatasetState(
            about.name, about.title, about.kind, about.language, about.license, about.citation, about.note,
            tuple(remote.where for remote in about.sources.values()),
            tuple(_split_state(about, name) for name in about.splits),
        )
        for about in entries
    ]  # fmt: skip


def check_datasets(names: Sequence[str]) -> list[CheckedSplit]:
    """Read every split of the named data sets and download missing ones. Without names, read all local data sets."""
    entries = [catalog.entry(name) for name in names or catalog.names()]
    return [_check_split(about, split, download=bool(names)) for about in entries for split in about.splits]


def _split_state(about: DatasetEntry, name: str) -> SplitState:
    rows, columns = about.splits[name].rows, about.columns_of(name)
    state = catalog.state(about.name, name)
    if state.origin is not None:
        return SplitState(name, rows, columns, state.origin, state.path or None)
    states = [catalog.state(*root) for root in catalog.roots(about.name, name)]
    fetchable = all(one.origin is not None or one.sources for one in states)
    return SplitState(name, rows, columns, "fetchable" if fetchable else "missing")


def _check_split(about: DatasetEntry, split: str, download: bool) -> CheckedSplit:
    rows = about.splits[split].rows
    found = catalog.find(about.name, split)
    if found is None and not download:
        return CheckedSplit(about.name, split, "missing", rows)
    where: str = found[0] if found else "fetchable"
    try:
        source = found[1] if found else catalog.locate(about.name, split)
        where = found[0] if found else "cache"
        if about.columns_of(split) == catalog.PAIR_COLUMNS:
            counted = len(catalog.read_pairs(about.name, split))
        else:
            counted = source.check(sum(1 for _ in source.rows()))
        _, digest = source.scanned
    except CseError as error:
        where = "missing" if isinstance(error, MissingError) else where
        return CheckedSplit(about.name, split, where, rows, problem=str(error), exit_code=error.exit_code)
    if not source.known:
        problem = f"{source.where}: the SHA-256 of the rows is {digest}, expected {source.sha256}"
        return CheckedSplit(about.name, split, where, rows, counted, source.columns, digest, problem, exit_code=2)
    return CheckedSplit(about.name, split, where, rows, counted, source.columns, digest)


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
