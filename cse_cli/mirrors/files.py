"""Links from MLflow's artifacts to the files of a run, which need no disk space."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from registry.paths import make_folder


def link_folder(link: Path | None, folder: Path) -> None:
    """Create MLflow's artifact directory as a symbolic link to a directory of the run's record.

    Links inside the directory are not possible, because MLflow rejects links that lead out of it. A relative link
    remains valid after a move.
    """
    make_folder(folder)
    if link is not None and not link.is_symlink() and not link.exists():
        make_folder(link.parent)
        link.symlink_to(os.path.relpath(folder, link.parent))


def hard_link(source: Path, target: Path) -> None:
    """Create hard links to a file, or to all files of a directory. Copy if the file system has no hard links."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    else:
        make_folder(target.parent)
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
