"""The state directory, below which cse writes everything, and writing a file as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from registry.paths import state_directory


def home() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Nothing is created."""
    return state_directory()


def cache() -> Path:
    """Return where tokenised text and indexes are kept; safe to delete."""
    return home() / "cache"


def runs() -> Path:
    """Return where checkpoints and local copies of results are kept, one folder a run."""
    return home() / "runs"


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that no other process ever reads a part of it; a file of that name is replaced.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
