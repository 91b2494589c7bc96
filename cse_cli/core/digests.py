"""Cache of values that are computed from files, such as their SHA-256."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cse_cli.core import paths
from cse_cli.core.checksums import with_checksum, without_checksum
from registry.paths import write_atomically
from registry.resources import model_files

_Known = dict[str, tuple[str, str]]
"""Name of the value and paths of the files → state of the files, and the value."""

_known: dict[Path, _Known] = {}
"""Path of a cache → its content, with the additions of this process."""

_NEVER = ("", "")


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file. Read the file only if it changed since the last time."""
    return model_files.blob_sha256(file) or remembered("sha256", [file], lambda: model_files.sha256_of(file))


def remembered(what: str, files: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return a value that depends on files. Compute it only if a file changed since the last time.

    A cache that is damaged or read-only is not used.

    Args:
        what: Name of the value, with everything except the files that it depends on.
        files: Files. Only their status is read.
        compute: Function that returns the value.
    """
    cache = paths.cache() / "digests.json"
    known = _known.setdefault(cache, {})
    key, state = "\n".join([what, *map(os.path.abspath, files)]), _state(files)
    if known.get(key, _NEVER)[0] != state:
        known[key] = _read(cache).get(key, _NEVER)
    if known[key][0] != state:
        known[key] = state, compute()
        _write(cache, known)
    return known[key][1]


def _state(files: Sequence[Path]) -> str:
    """Return size, times and inode of files. A copy that keeps size and time still has another inode change time."""
    stats = [file.stat() for file in files]
    return json.dumps([[s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino] for s in stats])


def _read(cache: Path) -> _Known:
    try:
        document = without_checksum(json.loads(cache.read_text(encoding="utf-8")))
        return {str(key): (str(state), str(value)) for key, (state, value) in document["known"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _write(cache: Path, known: _Known) -> None:
    """Merge the known values with those of other processes, and write them. Files that no longer exist are dropped."""
    together = {**_read(cache), **known}
    kept = {key: value for key, value in together.items() if all(map(os.path.exists, key.split("\n")[1:]))}
    with suppress(OSError):
        write_atomically(cache, json.dumps(with_checksum({"known": kept})))
