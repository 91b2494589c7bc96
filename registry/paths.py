"""Where files of this program lie, and how they are written whole."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a full disk, a quota and a limit on the size of a file answer."""


def state_directory() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Nothing is created."""
    if configured := os.environ.get("CSE_HOME"):
        return expand_user(Path(configured)).absolute()
    from platformdirs import user_data_path

    return user_data_path("cse", appauthor=False)


def downloads() -> Path:
    """Return where files from addresses other than the hub's are kept; the hub has its own cache (`HF_HOME`)."""
    return state_directory() / "downloads"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; the state directory for its owner alone: recipes, texts and models are there.

    Raises:
        OSError: It cannot be made.
    """
    home = state_directory()
    if folder.is_relative_to(home):
        home.mkdir(0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def is_file(path: Path) -> bool:
    """Return whether a file is there; none is where its name could be no file's, one too long for example."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_dir(path: Path) -> bool:
    """Return whether a folder is there, as `is_file` does."""
    try:
        return path.is_dir()
    except OSError:
        return False


def expand_user(path: Path) -> Path:
    """Return the path with its "~"; as it is where that means nobody's home."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that other processes see whole or not at all; what is no file, /dev/stdout, is written to."""
    whole = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(whole)
        return
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(whole)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def no_room(error: Exception) -> str | None:
    """Return what the system said where an error means that there is no room on the disk, else None.

    Libraries written in Rust, safetensors among them, put the number into their text.
    """
    told = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    return os.strerror(number) if number in NO_ROOM else None
