"""`cse data list` and `cse data check`: what the catalogue holds, what of it is here, and whether that is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from registry import catalogue
from registry.catalogue import DatasetEntry
from registry.errors import CseError, MissingError


@dataclass(frozen=True)
class SplitState:
    """One split of a data set.

    Args:
        rows: Rows the catalogue expects.
        where: "package", "CSE_DATA", "cache" (what was fetched before), "generated", "fetchable" or "missing".
        path: Its files, where it is here.
    """

    name: str
    rows: int
    columns: tuple[str, ...]
    where: str
    path: str | None = None


@dataclass(frozen=True)
class DatasetState:
    """One catalogue entry and its splits.

    Args:
        sources: Where it can be fetched from, in the order in which they are tried.
    """

    name: str
    title: str
    kind: str
    language: str
    licence: str
    citation: str
    note: str
    sources: tuple[str, ...]
    splits: tuple[SplitState, ...]


@dataclass(frozen=True)
class Checked:
    """One split, read from its first row to its last.

    Args:
        expected: Rows the catalogue says it has.
        rows: Rows found; None if it could not be read.
        digest: SHA-256 of its content.
        problem: What is wrong, or None.
        exit_code: What the command should end with because of it.
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


def datasets() -> list[DatasetState]:
    """Return every entry, sorted by kind, language and name; the network is not touched."""
    entries = sorted(map(catalogue.entry, catalogue.names()), key=lambda e: (e.kind, e.language, e.name))
    return [
        DatasetState(
            about.name, about.title, about.kind, about.language, about.licence, about.citation, about.note,
            tuple(remote.where for remote in about.sources.values()),
            tuple(_split(about, name) for name in about.splits),
        )
        for about in entries
    ]  # fmt: skip


def check_datasets(names: Sequence[str]) -> list[Checked]:
    """Read every split of the named data sets, fetching them if need be; without names, of all that are here.

    Raises:
        UnknownNameError: There is no such data set.
    """
    entries = [catalogue.entry(name) for name in names or catalogue.names()]
    return [_check(about, split, fetch=bool(names)) for about in entries for split in about.splits]


def _split(about: DatasetEntry, name: str) -> SplitState:
    rows, columns = about.splits[name].rows, about.columns_of(name)
    state = catalogue.state(about.name, name)
    if state.origin is not None:
        return SplitState(name, rows, columns, state.origin, state.path or None)
    states = [catalogue.state(*root) for root in catalogue.roots(about.name, name)]
    fetchable = all(one.origin is not None or one.sources for one in states)
    return SplitState(name, rows, columns, "fetchable" if fetchable else "missing")


def _check(about: DatasetEntry, split: str, fetch: bool) -> Checked:
    rows = about.splits[split].rows
    found = catalogue.find(about.name, split)
    if found is None and not fetch:
        return Checked(about.name, split, "missing", rows)
    where: str = found[0] if found else "fetchable"
    try:
        source = found[1] if found else catalogue.locate(about.name, split)
        where = found[0] if found else "cache"
        if about.columns_of(split) == catalogue.PAIR_COLUMNS:
            counted = len(catalogue.read_pairs(about.name, split))
        else:
            counted = source.check(sum(1 for _ in source.rows()))
        digest = source.digest
    except CseError as error:
        where = "missing" if isinstance(error, MissingError) else where
        return Checked(about.name, split, where, rows, problem=str(error), exit_code=error.exit_code)
    return Checked(about.name, split, where, rows, counted, source.columns, digest)
