"""State directory. `cse` writes all files below it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from registry.errors import TrackingError
from registry.paths import make_folder, state_directory


def home() -> Path:
    """Return the absolute path of the state directory: `CSE_HOME`, or the user data directory if it is not set."""
    return state_directory()


def require_home() -> Path:
    """Return the state directory, and create it if it is missing.

    Raises:
        TrackingError: If it is not writable, or a file is in its place.
    """
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
