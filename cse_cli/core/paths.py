"""State directory, below which `cse` writes all files, and a limit for searches of directories."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile

from registry.errors import CseError, TrackingError
from registry.paths import make_folder, state_directory

MOST_ENTRIES = 100_000
"""Maximum number of entries to search for a directory or a glob, which takes 0.5 s."""


def home() -> Path:
    """Return the absolute path of the state directory: `CSE_HOME`, or the user data directory if it is not set."""
    return state_directory()


def require_home() -> Path:
    """Return the state directory, and create it if it is missing."""
    folder = home()
    try:
        make_folder(folder)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TrackingError(
            f"the state directory {folder} is not writable: {error.strerror}",
            "set CSE_HOME to another directory",
            code="core.home_not_writable",
        ) from error
    for part in (runs(), cache(), folder / "artifacts"):
        if part.exists() and not part.is_dir():
            raise TrackingError(
                f"{part} is a file, but must be a directory",
                "move the file away, then retry",
                code="core.file_in_place",
            )
    return folder


def cache() -> Path:
    """Return the directory of tokenized text and indexes. You can delete it."""
    return home() / "cache"


def runs() -> Path:
    """Return the directory of the runs, with one directory per run."""
    return home() / "runs"


def check_entries(
    folder: Path, levels: int | None, action: str = "give a directory that contains little except the text"
) -> None:
    """Raise `CseError` if a search of this many levels (None: all) would find more than `MOST_ENTRIES` entries."""
    seen, start = 0, len(folder.parts)
    for here, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MOST_ENTRIES:
            raise CseError(
                f"directory '{folder}' contains more than {MOST_ENTRIES:,} files and directories",
                action,
                code="data.too_many_files",
            )
        if levels is not None and len(Path(here).parts) - start >= levels - 1:
            folders.clear()
