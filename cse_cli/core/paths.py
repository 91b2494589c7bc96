"""The one state directory: cse writes everything below it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from registry.errors import TrackingError
from registry.paths import make_folder, state_directory


def home() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Nothing is created."""
    return state_directory()


def require_home() -> Path:
    """Return the state directory, made where it is missing.

    Raises:
        TrackingError: It cannot be written, or a file is in the way.
    """
    folder = home()
    try:
        make_folder(folder)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TrackingError(
            f"the state directory {folder} cannot be written: {error.strerror}", "set CSE_HOME to another folder"
        ) from error
    for part in (runs(), cache(), folder / "artifacts"):
        if part.exists() and not part.is_dir():
            raise TrackingError(f"{part} is a file, and should be a folder", "move it away, and run this again")
    return folder


def cache() -> Path:
    """Return where tokenised text and indexes are kept; safe to delete."""
    return home() / "cache"


def runs() -> Path:
    """Return where checkpoints and local copies of results are kept, one folder a run."""
    return home() / "runs"
