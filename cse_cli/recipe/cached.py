"""A cache of facts about recipes and components, so that commands that only read do not import torch.

A file of the cache is valid for one state of the installed code, whose digest is computed without importing it. A
damaged file is ignored, and so is a read-only directory. Without the cache, `cse list` takes 5 to 7 times as long.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from cse_cli._version import __version__
from cse_cli.core import paths
from cse_cli.recipe.completion import DIRECTORIES, KINDS
from registry import plugins
from registry.paths import write_atomically

_HERE = Path(__file__).resolve().parent
_OWN = (_HERE, _HERE.parents[1] / "registry")
_adapter = cache(TypeAdapter)

T = TypeVar("T")


def cached(name: str, key: str, kind: Any, compute: Callable[[], T]) -> T:
    """Return a value from the cache, or compute it and write it to the cache.

    It is not written if the installed code is not the loaded one, or if a plug-in is broken. With plug-in files, the
    cache is not used.

    Args:
        name: Name of the file in the cache.
        key: Everything that the value depends on, except the installed code.
        kind: Type of the value.
        compute: Function that returns the value.
    """
    if plugins.named():
        return compute()
    file = paths.cache() / "catalog" / f"{name}.json"
    with suppress(OSError, ValueError):
        digest, content = file.read_bytes().split(b"\n", 1)
        if digest == _digest(key, content):
            found: T = _adapter(kind).validate_json(content)
            return found
    value = compute()

    from cse_cli.recipe.describe import broken_plugins

    with suppress(OSError):
        if installed().is_loaded and not broken_plugins():
            content = _adapter(kind).dump_json(value)
            write_atomically(file, _digest(key, content) + b"\n" + content)
    return value


def _digest(key: str, content: bytes) -> bytes:
    """Return a digest of the installed code, the key and the content."""
    return hashlib.sha256(f"{installed().key}\0{key}\0".encode() + content).hexdigest().encode()


@dataclass(frozen=True)
class Installed:
    """A digest of the installed code, and the time of its last change in seconds since the epoch."""

    key: str
    changed: float

    @property
    def is_loaded(self) -> bool:
        """Whether this process runs this code, because no file changed after the process started."""
        import psutil

        return self.changed < psutil.Process().create_time()


@cache
def installed() -> Installed:
    """Return the digest of the installed code."""
    digest, changed = hashlib.sha256(f"{__version__}\n{sys.version}\n".encode()), 0.0
    roots, found = list(map(str, _OWN)), entry_points()
    plugins = {point for kind in (*KINDS, *DIRECTORIES) for point in found.select(group=f"cse.{kind}")}
    for point in sorted(plugins, key=lambda point: (point.group, point.name, point.value)):
        dist = (point.dist.name, point.dist.version) if point.dist else ()
        digest.update(repr((point.group, point.name, point.value, *dist)).encode())
        roots += _code_of(point.module)
    for root in dict.fromkeys(roots):
        for path in _files(root):
            status = os.stat(path)  # noqa: PTH116 - 1,000 files: a Path for each takes too long
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
            changed = max(changed, status.st_mtime, status.st_ctime)
    return Installed(digest.hexdigest(), changed)


def _code_of(module: str) -> list[str]:
    """Return the directories or the file of the top-level package of a plug-in, which is not imported."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    return [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]


def _files(root: str) -> Iterator[str]:
    """Yield the files below a directory in a fixed order, or the path itself if it is a file."""
    if os.path.isfile(root):  # noqa: PTH113
        yield root
    for directory, directories, names in os.walk(root):
        directories[:] = sorted(set(directories) - {"__pycache__"})
        yield from (os.path.join(directory, name) for name in sorted(names))  # noqa: PTH118
