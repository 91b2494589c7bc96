"""The one state directory: cse writes everything below it."""

from __future__ import annotations

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
