"""Files of a run that MLflow shows: they are in the directory of the run, and on the disk once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from registry.paths import make_folder


def link_folder(link: Path | None, folder: Path) -> None:
    """Let MLflow's directory of artifacts be a symbolic link to a directory of the run's record.

    Only the whole directory can be one: MLflow refuses links that lead out of it. Relative, it survives a move.
    """
    make_folder(folder)
    if link is not None and not link.is_symlink() and not link.exists():
        make_folder(link.parent)
        link.symlink_to(os.path.relpath(folder, link.parent))


def hard_link(source: Path, target: Path) -> None:
    """Put a file or directory into another place, without a second copy if the file system has hard links."""
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
