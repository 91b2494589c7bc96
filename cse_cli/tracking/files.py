"""Files of a run that lie in two places and on the disk once: its folder and the tracking store's artifacts."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse


def local_folder(uri: str) -> Path | None:
    """Return the folder on this machine that an address of artifacts means, or None where a server keeps them."""
    parts = urlparse(uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def link_folder(source: Path, target: Path) -> None:
    """Put the files of a folder into another one, as hard links where the file system can, else as copies."""
    shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def size_freed(paths: Iterable[Path]) -> int:
    """Return how many bytes are free once these files and folders are deleted: of a file, once its last link goes."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    found = [file.lstat() for file in files if file.is_file() or file.is_symlink()]
    links = Counter((one.st_dev, one.st_ino) for one in found)
    sizes = {(one.st_dev, one.st_ino): one.st_size for one in found if one.st_nlink <= links[one.st_dev, one.st_ino]}
    return sum(sizes.values())
