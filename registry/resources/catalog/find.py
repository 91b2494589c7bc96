"""Search for a split: in the package, in `$CSE_DATA`, in the caches, or at a source on the network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from registry import paths, plugins
from registry.errors import MissingError, UnknownNameError, suggestion
from registry.resources import hub
from registry.resources.catalog.entries import ALL, DatasetEntry, Generated, Layout, Part, Parts, Remote, entry, file_of
from registry.resources.catalog.readers import File, Rows, Source, Table, member_of
from registry.resources.download import download, known_files

Origin = Literal["package", "CSE_DATA", "cache", "generated"]

SHIPPED = Path(__file__).parent.parent.parent / "texts"
"""Directory of the data in this package."""

_GITHUB = "https://raw.githubusercontent.com"


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
    """Return a split of a named data set, and download it if it is not on this machine.

    Raises:
        UnknownNameError: If the data set or split does not exist.
        MissingError: If it cannot be downloaded.
    """
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

    Raises:
        UnknownNameError: If the data set or split does not exist.
        MissingError: If no source has it.
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

    Args:
        file: Path in the recipe.
        what: Kind of file, for the message.
        action: Next action for the message.

    Raises:
        MissingError: If the file does not exist.
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
