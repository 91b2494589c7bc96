"""Catalog of named data sets: their entries, the search for a split, and scored pairs. Every row is checked.

A data set is one TOML file in `registry/datasets/`. A split is searched in the package, in `$CSE_DATA`, in the caches
and at a source on the network. This module imports neither torch, datasets, pyarrow nor huggingface_hub.
"""

from __future__ import annotations

import hashlib
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from registry import paths
from registry.errors import CseError, MissingError, RegistrationError, UnknownNameError, suggestion
from registry.machinery import plugins
from registry.machinery.validation import describe
from registry.paths import state_of
from registry.resources import hub
from registry.resources.download import download, known_files
from registry.resources.rows import (
    FORMATS,
    CatalogTable,
    Column,
    File,
    Kind,
    Layout,
    Record,
    Rows,
    Source,
    Table,
    member_of,
    names_a_file,
    shown,
)

FOLDER = Path(__file__).parent.parent / "datasets"
SHIPPED = Path(__file__).parent.parent / "texts"
"""Directory of the data in this package."""

PAIR_COLUMNS = ("subset", "score", "sentence1", "sentence2")
ALL = "all"
HUB = "hf:"
"""Prefix of data sets of the Hub."""

ROWS = "rows:"
"""Prefix of digests of rows."""

_GITHUB = "https://raw.githubusercontent.com"
_SCORE = "write a number with a decimal point and without quotes, or remove the row"

# --- entries ----------------------------------------------------------------------------------------------------------


class Part(CatalogTable):
    """One or several files of a split at a source. Their rows follow those of the previous part.

    Args:
        file: File name or pattern with `*`. In an archive: the end of a member's path.
        constants: Column → value of this column in every row.
        column: Column that contains one cell per line. The n-th lines of all such parts form row n.
    """

    file: str
    constants: dict[str, str] = Field(default_factory=dict)
    column: str = ""


Parts = tuple[Annotated[Part, BeforeValidator(lambda part: {"file": part} if isinstance(part, str) else part)], ...]


class Remote(Layout):
    """Source of files: a data set repository of the Hugging Face Hub, or an address.

    Args:
        hub: Repository "owner/name".
        revision: Commit of the repository.
        url: Address before the file names. It contains a commit, so the content cannot change.
        archive: Archive (.tar or .zip) that contains the files of the splits.
    """

    hub: str = ""
    revision: str = ""
    url: str = ""
    archive: str = ""

    @model_validator(mode="after")
    def _one_place(self) -> Remote:
        if bool(self.hub) == bool(self.url) or bool(self.hub) != bool(self.revision):
            raise ValueError("give either `hub` and `revision`, or `url`")
        return self

    @property
    def where(self) -> str:
        """Name for messages: "hf:owner/name@commit", or the address."""
        return f"hf:{self.hub}@{self.revision[:12]}" if self.hub else self.url


class Split(CatalogTable):
    """One part of a data set.

    Args:
        rows: Number of rows, without the header.
        sha256: Digest of the rows, if they were available when the entry was written. See `Source.digest`.
        path: File in `$CSE_DATA`. Empty if the split is only generated or downloaded.
        shipped: File of this package in `registry/texts/`, or of a plug-in next to its entry. Takes precedence over all
            others.
        files: Source → files in order. Files that match a pattern are in name order.
        bytes: Source → approximate download size.
        columns: Columns of this split, if they differ from those of the entry.
    """

    rows: int = Field(gt=0)
    sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    path: str = ""
    shipped: str = ""
    files: dict[str, Parts] = Field(default_factory=dict)
    bytes: dict[str, int] = Field(default_factory=dict)
    columns: tuple[str, ...] = ()


class Generated(CatalogTable):
    """A registered generator and its parameters."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Name and split of the data sets in its parameter `sources`."""
        return tuple(map(dataset_and_split, self.params.get("sources", ())))


class DatasetEntry(CatalogTable):
    """A named data set.

    Args:
        kind: "text" for training, "pairs" with a gold score, "labeled" for classification.
        language: ISO 639-3 or two-letter code. "en-de" for parallel text.
        cite: Keys of its works in `registry/papers/references.bib`.
        columns: Names of the columns in this project.
        note: Information that users need before they use it.
        instead: Data set of this package, or with an address, to use if this one is not available.
        local: Layout of the files in `$CSE_DATA`.
        sources: Name → source, in the order of the attempts.
    """

    name: str
    title: str
    kind: Kind
    language: str
    license: str
    citation: str
    cite: tuple[str, ...] = ()
    url: str = ""
    columns: tuple[str, ...]
    note: str = ""
    instead: str = ""
    local: Layout = Layout()
    sources: dict[str, Remote] = Field(default_factory=dict)
    generator: Generated | None = None
    splits: dict[str, Split]

    @model_validator(mode="after")
    def _known_sources(self) -> DatasetEntry:
        for name, split in self.splits.items():
            if unknown := (split.files.keys() | split.bytes.keys()) - self.sources.keys():
                raise ValueError(f"split '{name}' uses undefined sources: {', '.join(sorted(unknown))}")
        return self

    def split(self, name: str) -> Split:
        """Return one split. "all" joins the others, unless the entry defines it."""
        if name in self.splits:
            return self.splits[name]
        if name == ALL and self.joinable:
            return Split(rows=sum(split.rows for split in self.splits.values()))
        known = [*self.splits, ALL] if self.joinable else list(self.splits)
        raise UnknownNameError(
            f"dataset '{self.name}' has no split '{name}'.{suggestion(name, known)}",
            f"use one of its splits: {', '.join(dict.fromkeys(known))}",
            code="data.unknown_split",
        )

    @property
    def joinable(self) -> bool:
        """Whether all splits have the same columns, so that "all" can join them."""
        return not any(split.columns for split in self.splits.values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the splits that "all" joins, in order."""
        return tuple(name for name in self.splits if name != ALL)

    def columns_of(self, split: str) -> tuple[str, ...]:
        """Return the columns of one split."""
        return self.split(split).columns or self.columns


def dataset_and_split(written: str) -> tuple[str, str]:
    """Return name and split of "name/split". A name without split means "all"."""
    name, _, split = written.partition("/")
    return name, split or ALL


def names() -> list[str]:
    """Return the names of all entries, sorted."""
    return sorted({path.stem for folder in (FOLDER, *plugins.folders("datasets")) for path in folder.glob("*.toml")})


def file_of(name: str) -> Path:
    """Return the file of an entry, of this package or of a plug-in."""
    files = [path for folder in (FOLDER, *plugins.folders("datasets")) if (path := folder / f"{name}.toml").is_file()]
    if len(files) > 1:
        raise RegistrationError(
            f"two data sets have the name '{name}': {files[0]} and {files[1]}",
            "rename or remove one of them",
            code="data.same_name",
        )
    return files[0]


@cache
def entry(name: str) -> DatasetEntry:
    """Return the entry of a data set."""
    if name not in names():
        raise UnknownNameError(
            f"unknown dataset '{name}'.{suggestion(name, names())}",
            "run `cse data list` to see all data sets",
            code="data.unknown_dataset",
        )
    path = file_of(name)
    try:
        return DatasetEntry(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError, CseError) as error:
        why = describe(error) if isinstance(error, ValidationError) else error
        raise RegistrationError(f"{path}: {why}", code="data.invalid_entry") from error


# --- splits -----------------------------------------------------------------------------------------------------------

Origin = Literal["package", "CSE_DATA", "cache", "generated"]


@dataclass(frozen=True)
class SplitState:
    """Location and sources of a split.

    Args:
        origin: Location on this machine, or None.
        path: Its files. Empty if it is generated, or not on this machine.
        sources: Sources in order: "hf:owner/name@commit", or an address.
        files: Files to download from the first source. Several data sets can share an archive.
        bytes: Approximate size of these files, if known.
    """

    name: str
    split: str
    origin: Origin | None
    path: str = ""
    sources: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    bytes: int | None = None


def state(name: str, split: str) -> SplitState:
    """Return location and sources of a split. Sends no request. For a split made from others, see `roots`."""
    about, found = entry(name), find(name, split)
    copies = _copies(about, split)
    files = copies[0].names if copies else ()
    size = about.split(split).bytes.get(copies[0].key) if copies else None
    origin = None if found is None else found[0]
    where = "" if found is None or origin == "generated" else found[1].where
    return SplitState(name, split, origin, where, tuple(copy.remote.where for copy in copies), files, size)


def roots(name: str, split: str) -> list[tuple[str, str]]:
    """Return name and split of everything with separate files that a split consists of.

    That is the split itself, the splits that "all" joins, or the splits that it is generated from.
    """
    about = entry(name)
    about.split(split)
    if about.generator is not None:
        return list(dict.fromkeys(root for source in about.generator.sources for root in roots(*source)))
    return [(name, part) for part in about.parts] if _joins(about, split) else [(name, split)]


def locate(name: str, split: str) -> Source:
    """Return a split of a named data set, and download it if it is not on this machine."""
    found = find(name, split)
    return fetch(name, split) if found is None else found[1]


def find(name: str, split: str) -> tuple[Origin, Source] | None:
    """Return a split on this machine and its origin, or None. Sends no request."""
    about = entry(name)
    if about.generator is not None:
        here = all(find(*source) for source in about.generator.sources)
        return ("generated", _generated(about, about.generator, split)) if here else None
    if (shipped := _shipped(about, split)) is not None:
        return "package", shipped
    folder, path = data_folder(), about.split(split).path
    if folder is not None and path and (folder / path).is_file():
        return "CSE_DATA", _source(about, split, File(folder / path, about.local, about.columns_of(split)))
    if _joins(about, split):
        every = [found for part in about.parts if (found := find(name, part))]
        origins = {origin for origin, _ in every}
        origin: Origin = origins.pop() if len(origins) == 1 else "cache"
        joined = _joined(about, [source for _, source in every])
        return (origin, joined) if len(every) == len(about.parts) else None
    chosen = _chosen([copy.cached() for copy in _copies(about, split)])
    return None if chosen is None else ("cache", chosen)


def _chosen(cached: Sequence[Source | None]) -> Source | None:
    """Return the downloaded copy to read, or None if a source that was not tried yet can be better."""
    here = [source for source in cached if source is not None]
    if not here or here == [cached[0]]:
        return here[0] if here else None  # its rows are counted when they are read
    known = next((source for source in here if source.known), None)
    return known or (cached[0] if cached[0] is not None and cached[0].known is not None else None)


def fetch(name: str, split: str, *, force: bool = False) -> Source:
    """Return a split from the first source whose digest is that of the catalog, else from one with as many rows.

    With `force`, existing files are downloaded again.
    """
    about = entry(name)
    if (shipped := _shipped(about, split)) is not None:
        return shipped
    if about.generator is not None:
        _fetch_each(about.generator.sources, force, f"dataset '{name}' is made from others: ")
        return _generated(about, about.generator, split)
    if _joins(about, split):
        return _joined(about, _fetch_each([(name, part) for part in about.parts], force))
    return _from_a_source(about, split, force)


def _from_a_source(about: DatasetEntry, split: str, force: bool) -> Source:
    copies = _copies(about, split)
    alike: Source | None = None
    refused = []
    for copy in copies:
        try:
            source = copy.fetch(force)
        except (MissingError, UnknownNameError) as error:
            refused.append(f"{copy.remote.where}: {error.message}")
            continue
        if len(copies) == 1 or source.known:
            return source
        if source.known is None:
            refused.append(f"{copy.remote.where}: malformed, or not {about.split(split).rows} rows")
        else:
            alike = alike or source
    if alike is None:
        raise _missing(about, split, refused)
    return alike


def _fetch_each(wanted: Sequence[tuple[str, str]], force: bool, why: str = "") -> list[Source]:
    try:
        return [fetch(*one, force=True) if force else locate(*one) for one in wanted]
    except MissingError as error:
        raise MissingError(f"{why}{error.message}", error.next_action, code=error.code) from error


@dataclass(frozen=True)
class _Copy:
    """The files of a split at one of its sources."""

    about: DatasetEntry
    split: str
    key: str

    @property
    def remote(self) -> Remote:
        return self.about.sources[self.key]

    @property
    def parts(self) -> Parts:
        return self.about.split(self.split).files[self.key]

    @property
    def names(self) -> tuple[str, ...]:
        """Files to download."""
        return (self.remote.archive,) if self.remote.archive else tuple(part.file for part in self.parts)

    @property
    def repository(self) -> hub.Repository:
        return hub.Repository("dataset", self.remote.hub, self.remote.revision)

    @property
    def downloads(self) -> Path:
        return paths.downloads() / self.remote.url.partition("://")[2]

    def cached(self) -> Source | None:
        if self.remote.hub:
            folder = hub.cached(self.repository, self.names)
            return None if folder is None else self._within(folder)
        return self._within(self.downloads)

    def fetch(self, force: bool) -> Source:
        if self.remote.hub:
            folder = hub.fetch(self.repository, self.names, force=force)
        else:
            folder = self.downloads
            mirror = os.environ.get("CSE_GITHUB_MIRROR", _GITHUB).rstrip("/")
            url = self.remote.url.replace(_GITHUB, mirror)
            for name in self.names:
                download(url + name, folder / name, label=name, force=force)
        found = self._within(folder)
        if found is None:
            parts, names = ", ".join(part.file for part in self.parts), ", ".join(self.names)
            raise MissingError(f"{names} does not contain {parts}", code="data.missing_file")
        return found

    def _within(self, folder: Path) -> Source | None:
        """Return the split from downloaded files, or None if one is missing."""
        found = [(part, self._places(folder, part)) for part in self.parts]
        if not all(places for _, places in found):
            return None
        columns = tuple(part.column for part in self.parts if part.column)
        limit = self.about.split(self.split).rows if self.remote.longer else None
        if columns:
            first, *others = (path for _, places in found for path, _ in places)
            tables = [File(first, self.remote, columns, others=tuple(others), limit=limit)]
        else:
            columns = self.about.columns_of(self.split)
            tables = [
                File(path, self.remote, columns, member, constants=part.constants, limit=limit)
                for part, places in found
                for path, member in places
            ]
        again = f"run `cse data download --force {self.about.name}` to download it again"
        return _source(self.about, self.split, *tables, remedy=again)

    def _places(self, folder: Path, part: Part) -> list[tuple[Path, str]]:
        """Return path and member of each file of a part."""
        if not self.remote.archive:
            return [(path, "") for path in sorted(folder.glob(part.file))]
        archive = folder / self.remote.archive
        member = member_of(archive, part.file) if archive.is_file() else None
        return [] if member is None else [(archive, member)]


def _copies(about: DatasetEntry, split: str) -> list[_Copy]:
    return [_Copy(about, split, key) for key in about.sources if key in about.split(split).files]


def _source(about: DatasetEntry, split: str, *tables: Table, remedy: str = Source.remedy) -> Source:
    part = about.split(split)
    return Source(about.columns_of(split), tables, part.rows, part.sha256, about.kind, remedy)


def _generated(about: DatasetEntry, generator: Generated, split: str) -> Source:
    def make(_columns: Sequence[str]) -> Iterable[Mapping[str, str]]:
        from registry import GENERATORS
        from registry.types import RowGenerator

        made = GENERATORS[generator.name].build(generator.params)
        assert isinstance(made, RowGenerator)  # the entries of the catalog are tested
        return made.rows(split)

    return _source(about, split, Rows(f"generator '{generator.name}'", make, about.columns_of(split)))


def _joins(about: DatasetEntry, split: str) -> bool:
    """Return whether a split consists only of the files of the other splits."""
    whole = about.split(split)
    return split == ALL and not whole.path and not whole.files and not whole.shipped


def _joined(about: DatasetEntry, parts: Sequence[Source]) -> Source:
    return _source(about, ALL, *(table for part in parts for table in part.tables))


def _shipped(about: DatasetEntry, split: str) -> Source | None:
    file = about.split(split).shipped
    if not file:
        return None
    folder = file_of(about.name).parent
    path = (folder if folder in plugins.folders("datasets") else SHIPPED) / file
    return _source(about, split, File(path, Layout(), about.columns_of(split)))


def data_folder() -> Path | None:
    """Return the absolute path of `$CSE_DATA`. Default: `data` in the state directory, or None if it does not exist."""
    if configured := os.environ.get("CSE_DATA"):
        return paths.expand_user(Path(configured)).absolute()
    unpacked = paths.state_directory() / "data"
    return unpacked if unpacked.is_dir() else None


def own_file(file: str) -> Path | None:
    """Return a file from the current directory, `$CSE_DATA` or the cache of known files, or None."""
    path, folder = paths.expand_user(Path(file)), data_folder()
    places = [path] if folder is None else [path, folder / path]
    if found := next((place.absolute() for place in places if paths.is_file(place)), None):
        return found
    known = known_files().get(file)
    return None if known is None else known.cached()


def similar_files(file: str) -> str:
    """Return ``. Did you mean 'x'?`` with files of the same directory, or an empty string."""
    path, folder = paths.expand_user(Path(file)), data_folder()
    near = [place / path.parent for place in (Path(), folder) if place is not None]
    names = [each.name for place in near if paths.is_dir(place) for each in place.iterdir() if each.is_file()]
    hint = suggestion(path.name, names)
    return f".{hint}" if hint else ""


def require_own_file(file: str, what: str, action: str) -> Path:
    """Return a file, as `own_file` does.

    `what` and `action` are for the error.
    """
    if (found := own_file(file)) is not None:
        return found
    folder = data_folder()
    searched = " in this directory" if folder is None else f" in this directory or in CSE_DATA ({folder})"
    if paths.expand_user(Path(file)).is_absolute():
        searched = ""
    raise MissingError(f"no {what} at {file}{searched}{similar_files(file)}", action, code="data.missing_file")


def _missing(about: DatasetEntry, split: str, refused: Sequence[str]) -> MissingError:
    path = about.split(split).path
    folder = data_folder()
    setting = "CSE_DATA is not set" if folder is None else f"CSE_DATA is {folder}"
    setting += "" if folder is None or folder.is_dir() else ", which does not exist"
    ways = [f"put {path or 'its files'} into the directory that CSE_DATA names ({setting}); see {about.url}"]
    if refused:
        why = f"and the download failed: {'; '.join(refused)}"
        ways += [
            f"run `cse data download {about.name}` on a connected machine, and copy its cache (HF_HOME, CSE_HOME)",
            "set HF_ENDPOINT or CSE_GITHUB_MIRROR to a mirror that this machine can reach",
        ]
    else:
        why = "and cse has no address to download it from"
        if about.instead:
            ways.insert(0, f"train on '{about.instead}', which is available: --set data.dataset={about.instead}")
        ways += [
            'train on your own text: `[data] file = "path.txt"` (or .tsv with a header) instead of `dataset`',
            "use a data set on this machine: see `cse data list`",
        ]
    numbered = "".join(f"\n    {number}. {way}" for number, way in enumerate(ways, start=1))
    what = f"dataset '{about.name}', split '{split}'{f' ({path})' if path else ''}"
    return MissingError(f"{what} is not on this machine, {why}", f"one of:{numbered}", code="data.missing_dataset")


# --- pairs ------------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two sentences and their gold score."""

    subset: str
    score: float
    first: str
    second: str


def read_pairs(name: str, split: str) -> list[Pair]:
    """Return the scored pairs of a split, in the order of its files."""
    columns = entry(name).columns_of(split)
    if columns != PAIR_COLUMNS:
        raise CseError(
            f"dataset '{name}', split '{split}' has no scored pairs, only columns {', '.join(columns)}",
            "use a data set of kind 'pairs': see `cse data list`",
            code="data.no_pairs",
        )
    return read_columns(name, split, [Column("", name) for name in ("sentence1", "sentence2", "score", "subset")])


def read_columns(name: str, split: str, columns: Sequence[Column]) -> list[Pair]:
    """Return two columns of a split as pairs, in the order of its files. A third is the score, a fourth the subset."""
    known = entry(name).columns_of(split)
    for column in columns:
        if column.name not in known:
            raise UnknownNameError(
                f"dataset '{name}/{split}' has no column '{column.name}'.{suggestion(column.name, known)}",
                f"set `{column.parameter}` to one of {', '.join(known)}",
                code="data.missing_column",
            )
    source = locate(name, split)
    wanted = [Column("", column.name) for column in columns]
    subset = len(columns) > 3
    pairs = [_pair(record, wanted, str(record.cells[3]) if subset else "") for record in source.records(wanted)]
    source.check(len(pairs))
    return pairs


def open_text(name: str, split: str = "train") -> Iterator[dict[str, str]]:
    """Yield the rows of a split, column → cell. A wrong number of rows is an error after the last one."""
    source, rows = locate(name, split), 0
    for row in source.rows():
        rows += 1
        yield dict(zip(source.columns, row, strict=True))
    source.check(rows)


def fingerprint(name: str, split: str) -> str:
    """Return "rows:" and the digest of a split's rows, which is the same for all sources.

    A process reads unchanged files once. The files of a generated split are those of its sources.
    """
    files = locate(name, split).paths or [path for root in roots(name, split) for path in locate(*root).paths]
    return f"{ROWS}{_digest(name, split, *((path, *state_of(path)) for path in files))}"


@cache
def _digest(name: str, split: str, *_states: object) -> str:
    return locate(name, split).digest


@dataclass(frozen=True)
class PairFile:
    """Pairs from a .tsv, .csv, .jsonl (plain or .gz) or .parquet file with named columns, or a data set of the Hub.

    Args:
        file: Path, absolute or relative to the current directory or to $CSE_DATA. Or "hf:owner/name", optionally with
            ":config" and "@revision".
        first: Column of the first sentence.
        second: Column of the second.
        score: Column of the gold score. Without it, scores are NaN.
        subset: Column that divides the pairs into subsets. Without it, all pairs are in the subset "".
        split: Split of a data set of the Hub.
    """

    file: str
    first: Column
    second: Column
    score: Column | None = None
    subset: Column | None = None
    split: str = "test"

    @property
    def pairs(self) -> list[Pair]:
        """The pairs, in the order of the file."""
        return self._read[0]

    def scored(self) -> list[Pair]:
        """Return the pairs. Raise `CseError` if a subset has no correlation: only one pair, or only one score."""
        pairs, places = self._read
        subsets: dict[str, list[float]] = {}
        for pair in pairs:
            subsets.setdefault(pair.subset, []).append(pair.score)
        _require_ranks(next(iter(places.values())), [pair.score for pair in pairs])
        for name, scores in subsets.items():
            _require_ranks(f"{places[name]}: subset {name!r}", scores)
        return pairs

    def fingerprints(self, split: str) -> dict[str, str]:
        """Return "file/split" → "rows:" and the digest of the pairs, the same for a file and for its `.gz`."""
        rows = repr([tuple(pair) for pair in self.pairs])  # with the limits of each cell
        return {f"{self.file}/{split}": f"{ROWS}{hashlib.sha256(rows.encode()).hexdigest()}"}

    @cached_property
    def _read(self) -> tuple[list[Pair], dict[str, str]]:
        """Return the pairs, and subset → place of its first row."""
        columns = [column for column in (self.first, self.second, self.score, self.subset) if column is not None]
        for one, other in combinations(columns, 2):
            if one.name == other.name:
                both = f"{one.parameter} and {other.parameter} both name the column '{one.name}'"
                raise CseError(both, "use a different column for each", code="data.same_column")
        if self.file.startswith(HUB):
            from registry.resources.hub_sets import open_hub_set

            opened = open_hub_set(self.file, self.split)
            where = f"{self.file}, split '{self.split}'"
            table: Table = Rows(where, opened.select_columns, opened.column_names, typed=True)
        else:
            table = _own_file(self.file)
        pairs: list[Pair] = []
        places: dict[str, str] = {}
        blank = ""
        for record in (Record(table, *row) for row in table.read(columns)):
            if all(cell == "" for cell in record.cells):  # an error unless it is the end of the file
                blank = blank or record.location
                continue
            if blank:
                raise CseError(f"{blank}: empty line", "remove it", code="data.malformed_row")
            named = "" if self.subset is None else _sentence(record, self.subset, record.cells[-1])
            pairs.append(_pair(record, columns[: 2 + (self.score is not None)], named))
            places.setdefault(named, record.location)
        if not pairs:
            where = table.where if table.location(1).endswith("row 1") else table.location(1)
            raise CseError(f"{where}: the file has no pairs", "put one pair in each row", code="data.no_rows")
        return pairs, places


def require_one(owner: str, dataset: str | None, file: str | None) -> None:
    """Raise `CseError` unless exactly one of `dataset` and `file` is given."""
    if (dataset is None) == (file is None):
        found = "neither `dataset` nor `file`" if file is None else f"both dataset '{dataset}' and file '{file}'"
        raise CseError(
            f"{owner}: {found}", "set either `dataset` (see `cse data list`) or `file`", code="data.dataset_or_file"
        )


def own_source(file: str, columns: Sequence[str]) -> Source:
    """Return the rows of a table of the user, as text."""
    return Source(tuple(columns), (_own_file(file),))


def _own_file(file: str) -> Table:
    action = "give an existing path, absolute or relative to the current directory or to $CSE_DATA"
    found = require_own_file(file, "table", action)
    if not names_a_file(found.name) or File(found).format == ".txt":
        raise CseError(
            f"{found}: cannot read a table from '{found.name}'",
            f"use the suffix of its format: {', '.join(FORMATS[1:4])} (plain or .gz) or .parquet",
            code="data.unsupported_format",
        )
    return File(found)


def _require_ranks(where: str, scores: Sequence[float]) -> None:
    if len(scores) == 1:
        raise CseError(
            f"{where}: only one pair, but a correlation needs two", "add pairs with other scores", code="data.one_pair"
        )
    if min(scores) == max(scores):
        raise CseError(
            f"{where}: all {len(scores)} scores are {scores[0]:g}, so there is no correlation",
            "check which column contains the score",
            code="data.one_score",
        )


def _pair(record: Record, columns: Sequence[Column], subset: str) -> Pair:
    """Return the pair in a row with two sentences and, if there are three columns, a score."""
    first, second = (_sentence(record, column, cell) for column, cell in zip(columns[:2], record.cells, strict=False))
    return Pair(subset, _number(record, columns[2], record.cells[2]) if len(columns) > 2 else math.nan, first, second)


def _sentence(record: Record, column: Column, cell: object) -> str:
    if not isinstance(cell, str):
        wrong = f"is {shown(cell)}, not text"
    elif not cell.strip():
        wrong = "is empty"
    elif not cell.isascii() and any("\ud800" <= character <= "\udfff" for character in cell):
        raise CseError(
            f"{record.location}: '{column.name}' contains half a character (a lone surrogate)",
            "correct the encoding of the file",
            code="data.invalid_cell",
        )
    else:
        return cell
    raise CseError(
        f"{record.location}: '{column.name}' {wrong}", "write the sentence, or remove the row", code="data.invalid_cell"
    )


def _number(record: Record, column: Column, cell: object) -> float:
    typed = record.table.typed and column.parameter != ""  # files of the catalog can contain numbers as text
    allowed = isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) if typed else True
    try:
        value = float(str(cell)) if allowed and "_" not in str(cell) else math.nan  # float("1_0") is 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        found = "empty" if cell == "" else shown(cell)
        if typed and isinstance(cell, str):
            found = f"the text {cell!r}"[:80]
        raise CseError(
            f"{record.location}: '{column.name}' is {found}, not a finite number", _SCORE, code="data.invalid_cell"
        )
    return value
