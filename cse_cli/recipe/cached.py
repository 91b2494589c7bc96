"""The cache of facts: entries that count as long as the installed code and the files of their recipes are unchanged.

Everything in it can be computed again: a damaged file is ignored, and so is a folder that cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cse_cli.core.paths import cache
from cse_cli.recipe.files import find_parent, place_file
from cse_cli.recipe.installed import installed
from registry.errors import CseError
from registry.paths import write_atomically

if TYPE_CHECKING:
    from cse_cli.recipe.errors import Source
    from cse_cli.recipe.load import WrittenRecipe

T = TypeVar("T")


def entry_file(kind: str, path: Path) -> Path:
    """Return the file of the cache for a recipe or study."""
    return cache() / "catalog" / kind / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"


def from_cache(file: Path, built: Callable[[dict[str, Any]], T | None]) -> T | None:
    """Return what `built` makes of an entry; None if there is none for the installed code."""
    with suppress(CseError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        checksum, content = file.read_bytes().split(b"\n", 1)
        if checksum == _checksum(content) and (entry := json.loads(content))["code"] == installed().key:
            return built(entry)
    return None


def to_cache(file: Path, entry: dict[str, Any]) -> None:
    """Store an entry, unless this process runs other code than is installed, or a plug-in could not be imported."""
    from cse_cli.recipe.describe import broken_plugins

    with suppress(OSError):
        if installed().is_loaded and not broken_plugins():
            content = json.dumps({"code": installed().key, **entry}, default=str).encode()
            write_atomically(file, _checksum(content) + b"\n" + content)


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()


# --- the files of a recipe --------------------------------------------------------------------------------------------

Stamp = list[str | int]
"""Absolute path, size and time of a file."""

Key = dict[str, Any]
"""The files of a recipe or study, the nearest first, and how they name each other."""


def key_of(sources: tuple[Source, ...], *, study: bool = False) -> Key:
    """Return the key of files that were read: of a recipe, or with `study` of a study."""
    tables = [source.tables["study"] if study else source.tables for source in sources[:-1]]
    return {"files": [_stamp(source.path) for source in sources], "extends": [table["extends"] for table in tables]}


def key_of_recipe(written: WrittenRecipe) -> Key:
    """Return the key of a recipe that was read; it has the place of its training text, too."""
    return {**key_of(written.origins.sources), "placed": _placed(written)}


def is_unchanged(key: Key) -> bool:
    """Return whether files are as they were, and would be found again from the current folder."""
    files = [Path(name) for name, *_ in key["files"]]
    extended = zip(key["extends"], files, files[1:], strict=False)
    return (
        [_stamp(file) for file in files] == key["files"]
        and all(find_parent(name, child) == parent for name, child, parent in extended)
        and all(place_file(Path(name), Path(folder)) == placed for name, folder, placed in key.get("placed", ()))
    )


def changed_since(keys: list[Key], began: int) -> bool:
    """Return whether a file may have changed after it was read.

    Args:
        keys: Made after the files were read.
        began: `time.time_ns()` before they were read.
    """
    return any(changed >= began for key in keys for *_, changed in key["files"])


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return [str(file.absolute()), 0, time.time_ns()]
    return [str(file.absolute()), found.st_size, found.st_mtime_ns]


def _placed(written: WrittenRecipe) -> list[tuple[str, str, str]]:
    """Return each file of text as written, the folder it counts from, and the path it has now."""
    data = written.tables.get("data")
    named = data.get("file") if isinstance(data, dict) else None
    names = [named] if isinstance(named, str) else named or []
    folder = written.origins.folder(("data", "file"))
    return [(name, str(folder), place_file(Path(name), folder)) for name in names if isinstance(name, str)]
