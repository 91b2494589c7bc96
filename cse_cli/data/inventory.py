"""Data sets of the catalog and their state on this machine: `cse data list` and `cse data check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from registry.errors import CseError, MissingError
from registry.resources import catalog
from registry.resources.catalog import DatasetEntry


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
    """Read every split of the named data sets and download missing ones. Without names, read all local data sets.

    Raises:
        UnknownNameError: If a data set does not exist.
    """
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
