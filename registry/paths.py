"""Directories of this program, and atomic writes."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a quota and a file size limit."""


def state_directory() -> Path:
    """Return the absolute state directory: `CSE_HOME`, else the user's data directory. Creates nothing."""
    if configured := os.environ.get("CSE_HOME"):
        return expand_user(Path(configured)).absolute()
    from platformdirs import user_data_path

    return user_data_path("cse", appauthor=False)


def downloads() -> Path:
    """Return the directory of files from outside the Hub. The Hub has its own cache (`HF_HOME`)."""
    return state_directory() / "downloads"


def make_folder(folder: Path) -> None:
    """Create a directory and its parents. Only the owner can read the state directory."""
    home = state_directory()
    if folder.is_relative_to(home):
        home.mkdir(0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def state_of(path: Path) -> tuple[int, int, int, int]:
    """Return size, times of modification and change, and inode of a file. `cp -p` changes only the time of change."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def is_file(path: Path) -> bool:
    """Return whether a file exists. False for an invalid name, for example one that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_dir(path: Path) -> bool:
    """Return whether a directory exists. False for an invalid name."""
    try:
        return path.is_dir()
    except OSError:
        return False


def expand_user(path: Path) -> Path:
    """Return the path with "~" expanded, or unchanged if the user has no home directory."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically. Write directly to what is not a regular file, such as /dev/stdout."""
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
    """Return the system's message if an error means that the disk is full, else None.

    Libraries written in Rust, such as safetensors, put the error number into their text.
    """
    told = re.search(r"\(os error (\d+)\)|\bOs \{ code: (\d+)", str(error))
    number = error.errno if isinstance(error, OSError) else int(told[1] or told[2]) if told else None
    return os.strerror(number) if number in NO_ROOM else None
