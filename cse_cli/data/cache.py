"""Cached files, written atomically by one of several processes, each with a note of its size and of facts about it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from registry.errors import CseError, DiskError
from registry.paths import make_folder, no_room, write_atomically

Progress = Callable[[int, int], None]
"""Called with the number of rows done and the total number of rows."""

Facts = dict[str, Any]
"""Facts about the content of a file, as JSON values."""

Write = Callable[[Path], Facts]
"""Writes a file to a path and returns facts about its content."""


def cached(path: Path, write: Write) -> Facts:
    """Return the facts about a cached file. The file is written first if it is missing or incomplete."""
    with explained_cache_errors(path):
        return noted_facts(path, warn=True) or make_file(path, write)


def noted_facts(path: Path, *, warn: bool = False) -> Facts | None:
    """Return the facts noted about a file, or None if the file or its note is missing or incomplete."""
    try:
        note = path.with_suffix(".json").read_text(encoding="utf-8")
        facts: Facts = json.loads(note.rpartition("\n")[2])  # version 0.1 wrote a checksum in front
        size = path.stat().st_size
        if facts.get("bytes", size) == size:
            return facts
    except (OSError, ValueError, AttributeError):
        pass
    if warn and path.exists():
        warnings.warn(f"cached file {path} is damaged and is created again", stacklevel=3)
    return None


def make_file(path: Path, write: Write) -> Facts:
    """Write a file and its note, unless another process has done it in the meantime."""
    make_folder(path.parent)
    with FileLock(f"{path}.lock"):
        if (known := noted_facts(path)) is not None:
            return known
        draft = path.with_name(f"tmp-{path.name}")
        try:
            facts = write(draft)
            facts = {**facts, "bytes": draft.stat().st_size}
            write_atomically(path.with_suffix(".json"), json.dumps(facts))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return facts


def damaged(path: Path, why: str) -> CseError:
    """Return the error for a cached file that has the right size, but cannot be read."""
    return CseError(
        f"cached file {path} is damaged: {' '.join(why.split())[:200]}",
        "delete it, and run the command again",
        code="data.damaged_cache",
    )


@contextmanager
def explained_cache_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an error that explains how to make the cache writable."""
    try:
        yield
    except OSError as error:
        kind = DiskError if no_room(error) else CseError
        raise kind(
            f"cannot write to '{error.filename2 or error.filename or path}': "
            f"{no_room(error) or error.strerror or error}",
            "free some disk space, or set CSE_HOME to a directory that you can write to",
            code="data.cache_not_writable",
        ) from error
