"""A cache of facts about recipes and components. A damaged file is ignored, and so is a read-only directory."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from cse_cli.core.paths import cache
from cse_cli.recipe.files import place_file
from cse_cli.recipe.installed import installed
from cse_cli.recipe.sources import Source
from registry.paths import write_atomically

adapter = functools.cache(TypeAdapter)


def entry_file(kind: str, path: Path) -> Path:
    """Return the file in the cache for a recipe or study."""
    return cache() / "catalog" / kind / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"


def key_of(sources: Sequence[Source]) -> str:
    """Return a key of the files of a recipe or study, and of the paths where its data files are found."""
    placed = [place_file(Path(name), source.path.parent) for source in sources for name in _data_files(source)]
    return json.dumps([*((source.label, source.text) for source in sources), placed])


def _data_files(source: Source) -> list[str]:
    data = source.tables.get("data")
    file = data.get("file") if isinstance(data, dict) else None
    return [one for one in (file if isinstance(file, list) else [file]) if isinstance(one, str)]


def from_cache(file: Path, key: str, kind: Any) -> Any:
    """Return the value of type `kind` in a file of the cache, or None if it is missing, damaged or has another key."""
    with suppress(OSError, ValueError):
        digest, content = file.read_bytes().split(b"\n", 1)
        if digest == _digest(key, content):
            return adapter(kind).validate_json(content)
    return None


def to_cache(file: Path, key: str, kind: Any, value: Any) -> None:
    """Write a value to the cache, unless the installed code is not the loaded one or a plug-in is broken."""
    from cse_cli.recipe.describe import broken_plugins

    with suppress(OSError):
        if installed().is_loaded and not broken_plugins():
            content = adapter(kind).dump_json(value)
            write_atomically(file, _digest(key, content) + b"\n" + content)


def _digest(key: str, content: bytes) -> bytes:
    """Return a digest of the installed code, the key and the content."""
    return hashlib.sha256(f"{installed().key}\0{key}\0".encode() + content).hexdigest().encode()
