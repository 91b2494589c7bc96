"""Facts of runs, kept in memory and in a file that new ones are appended to. You can delete the file at any time."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli import __version__
from registry.paths import make_folder, write_atomically

Key = list[list[int] | None]
"""Time and size of each file that the facts of a run come from."""

_HEAD = json.dumps({"cse": __version__, "format": 1}).encode() + b"\n"


@dataclass(frozen=True)
class Entry:
    """Facts of one run.

    Args:
        run_id: ID of the run.
        key: Time and size of the files that the facts come from.
        facts: Facts that every reader needs.
        result: The result as JSON, which only some readers parse. Empty if there is none.
    """

    run_id: str
    key: Key
    facts: dict[str, Any]
    result: bytes

    def line(self) -> bytes:
        """Return the line of the file: CRC-32, facts and result, separated by tabs."""
        content = b"\t".join((json.dumps([self.run_id, self.key, self.facts]).encode(), self.result))
        return b"%08x\t%s\n" % (zlib.crc32(content), content)


def _parsed(line: bytes) -> Entry | None:
    """Return the entry of a line, or None if two processes that wrote at once or the disk damaged it."""
    with suppress(ValueError):
        crc, content = line.split(b"\t", 1)
        if int(crc, 16) == zlib.crc32(content):
            facts, result = content.split(b"\t", 1)
            run_id, key, known = json.loads(facts)
            return Entry(run_id, key, known, result)
    return None


class Cache:
    """Entries by the ID of the run.

    Args:
        file: File that keeps them. It does not have to be writable.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, Entry] = {}
        self._new: list[Entry] = []
        self._lines = -1
        with suppress(OSError):
            content = file.read_bytes()
            if content.startswith(_HEAD):
                lines = content[len(_HEAD) :].split(b"\n")[:-1]
                self._lines = len(lines)
                self._entries = {entry.run_id: entry for line in lines if (entry := _parsed(line)) is not None}

    def get(self, run_id: str, key: Key) -> Entry | None:
        """Return the entry of a run whose files have not changed."""
        entry = self._entries.get(run_id)
        return entry if entry is not None and entry.key == key else None

    def add(self, entry: Entry) -> None:
        """Keep an entry."""
        self._entries[entry.run_id] = entry
        self._new.append(entry)

    def save(self, run_ids: Collection[str]) -> None:
        """Append new entries to the file. Write it anew if it is missing, or if less than half of it is of use.

        Args:
            run_ids: All runs that exist.
        """
        if not self._new:
            return
        self._lines += len(self._new)
        content = b"".join(entry.line() for entry in self._new)
        self._new.clear()
        with suppress(OSError):  # a full disk or a read-only directory is read without the file
            if self._lines < len(self._entries) or self._lines > 2 * len(run_ids) + 100:
                self._entries = {run_id: self._entries[run_id] for run_id in run_ids if run_id in self._entries}
                write_atomically(self._file, _HEAD + b"".join(entry.line() for entry in self._entries.values()))
                self._lines = len(self._entries)
            else:
                self._append(content)

    def _append(self, content: bytes) -> None:
        make_folder(self._file.parent)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
