"""Where a split lies: `$CSE_DATA`, then the hub's cache, then the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from registry.catalogue import hub
from registry.catalogue.entries import ALL, DatasetEntry, Generated, Hub, Split, entry
from registry.catalogue.sources import FileSource, GeneratedSource, Source
from registry.errors import MissingError

Origin = Literal["CSE_DATA", "cache", "hub", "generated"]


def locate(name: str, split: str) -> Source:
    """Return a split of a named data set, fetched if need be.

    Raises:
        UnknownNameError: No such data set or split.
        MissingError: It is not on this machine and the hub does not answer; told within 5 s.
    """
    found = find(name, split)
    if found is not None:
        return found[1]
    about = entry(name)
    if about.generator is not None:
        return _from_sources(about, about.generator, split)
    if about.hub is None or not (patterns := _patterns(about, split)):
        raise _missing(about, split, "and no hub repository has it")
    try:
        paths = hub.fetch(about.hub.id, about.hub.revision, patterns)
    except hub.HubRefusedError as error:
        raise _missing(about, split, f"and it could not be fetched: {error}") from error
    return _from_hub(about, about.hub, split, paths)


def find(name: str, split: str) -> tuple[Origin, Source] | None:
    """Return where a split lies on this machine, without touching the network; None if it does not."""
    about = entry(name)
    part = about.split(split)
    columns = about.columns_of(split)
    if about.generator is not None:
        here = all(find(*source) is not None for source in about.generator.sources)
        return ("generated", GeneratedSource(about.generator, split, columns, part.rows)) if here else None
    if paths := _local(about, split):
        local = about.local
        return "CSE_DATA", FileSource(paths, columns, local.header, local.source, part.rows)
    if about.hub is not None and (patterns := _patterns(about, split)):
        paths = hub.cached(about.hub.id, about.hub.revision, patterns)
        if paths:
            return "cache", _from_hub(about, about.hub, split, paths)
    return None


def data_folder() -> Path | None:
    """Return `$CSE_DATA`, absolute, or None where it is not set."""
    configured = os.environ.get("CSE_DATA")
    return Path(configured).expanduser().absolute() if configured else None


def own_file(file: str) -> Path | None:
    """Return a file of the user's own: from the current folder, else from `$CSE_DATA`; None where neither has it."""
    path, folder = Path(file).expanduser(), data_folder()
    places = (path, *((folder / path,) if folder is not None else ()))
    return next((place.absolute() for place in places if place.is_file()), None)


def _local(about: DatasetEntry, split: str) -> tuple[Path, ...]:
    folder = data_folder()
    if folder is None:
        return ()
    paths = tuple(folder / part.path for part in _pieces(about, split) if part.path)
    return paths if paths and all(path.is_file() for path in paths) else ()


def _pieces(about: DatasetEntry, split: str) -> list[Split]:
    """Return the splits whose files make up `split`: itself, or all parts of "all"."""
    whole = about.split(split)
    return [about.splits[name] for name in about.parts] if split == ALL and not whole.path else [whole]


def _patterns(about: DatasetEntry, split: str) -> tuple[str, ...]:
    """Return the hub's files of a split: its own, or those of all its pieces; none if one piece has none."""
    own = about.split(split).hub
    pieces = [piece.hub for piece in _pieces(about, split)]
    return own or (tuple(pattern for patterns in pieces for pattern in patterns) if all(pieces) else ())


def _from_sources(about: DatasetEntry, generator: Generated, split: str) -> Source:
    """Return a generated split once the data sets that it is made from are on this machine."""
    for source in generator.sources:
        try:
            locate(*source)
        except MissingError as error:
            raise MissingError(
                f"dataset '{about.name}' is made from others: {error.message}", error.next_action
            ) from error
    return GeneratedSource(generator, split, about.columns_of(split), about.split(split).rows)


def _from_hub(about: DatasetEntry, repository: Hub, split: str, paths: tuple[Path, ...]) -> FileSource:
    return FileSource(paths, about.columns_of(split), repository.header, repository.source, about.split(split).rows)


def _missing(about: DatasetEntry, split: str, why: str) -> MissingError:
    patterns = _patterns(about, split)
    files = [part.path for part in _pieces(about, split) if part.path]
    wanted = ", ".join(files or patterns)
    ways = [f"put {wanted} below the folder that CSE_DATA names ({_setting()}); see {about.url}"]
    if about.hub is not None and patterns:
        included = " ".join(f"--include '{pattern}'" for pattern in patterns)
        ways += [
            f"on a connected machine: hf download {about.hub.id} --repo-type dataset --revision {about.hub.revision}"
            f" {included}, then copy its cache (HF_HOME) here",
            "set HF_ENDPOINT to a mirror of the hub that this machine reaches",
        ]
    else:
        ways += [
            'train on your own text: `[data] file = "path.txt"` (or .tsv with a header) instead of `dataset`',
            "use a dataset that is here: `cse data list` shows them",
        ]
    lines = "".join(f"\n    {number}. {way}" for number, way in enumerate(ways, start=1))
    return MissingError(
        f"dataset '{about.name}', split '{split}' ({wanted}) is not on this machine, {why}", f"one of:{lines}"
    )


def _setting() -> str:
    folder = data_folder()
    if folder is None:
        return "CSE_DATA is not set"
    return f"CSE_DATA is {folder}" + ("" if folder.is_dir() else ", which does not exist")
