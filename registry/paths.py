"""Where files of this program lie, and how they are written whole."""

from __future__ import annotations

import os
from pathlib import Path


def state_directory() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Nothing is created."""
    if configured := os.environ.get("CSE_HOME"):
        return Path(configured).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("cse", appauthor=False)


def downloads() -> Path:
    """Return where files from addresses other than the hub's are kept; the hub has its own cache (`HF_HOME`)."""
    return state_directory() / "downloads"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
