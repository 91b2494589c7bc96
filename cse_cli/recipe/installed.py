"""A digest of the installed code, computed without importing it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from cse_cli._version import __version__
from cse_cli.recipe.completion import KINDS

_HERE = Path(__file__).resolve().parent
_OWN = (_HERE, _HERE.parents[1] / "registry")


@dataclass(frozen=True)
class Installed:
    """The installed code.

    Args:
        key: Digest of the versions, of the path, size and time of every file, and of all plug-ins.
        changed: Time of the last change of a file, in seconds since the epoch.
    """

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
    plugins = {point for kind in KINDS for point in found.select(group=f"cse.{kind}")}
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
