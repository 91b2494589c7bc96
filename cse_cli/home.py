"""The one state directory: everything cse writes lies below it."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Nothing is created."""
    if configured := os.environ.get("CSE_HOME"):
        return Path(configured).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("cse", appauthor=False)


def cache() -> Path:
    """Return where tokenised text and indexes are kept; safe to delete."""
    return home() / "cache"


def runs() -> Path:
    """Return where checkpoints and local copies of results are kept, one folder a run."""
    return home() / "runs"
