"""What was translated before, on the disk: asked before a model is, and added to as it works."""

from __future__ import annotations

import hashlib
import sqlite3
import time
import warnings
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Self

from cse_cli.data.translator import Batch

SAVE_EVERY = 2.0
"""Seconds of work that a kill may lose."""


class Store:
    """All translations a translator ever made, by the sentence's SHA-256, in one SQLite file, each with a CRC-32.

    A row whose checksum is wrong is as good as missing: SQLite notices damage to its pages' structure, none to a text.
    Several processes may write at once, and any may be killed. The journal is SQLite's ordinary one: a write-ahead log
    does not work on the shared file systems where shards of one text meet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = sqlite3.connect(path, timeout=60)
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS translations (sentence BLOB PRIMARY KEY, line TEXT NOT NULL, crc32 INTEGER) "
            "WITHOUT ROWID"
        )
        self._add_checksums()
        self._damaged: set[bytes] = set()
        self._unsaved: dict[str, str] = {}
        self._saved = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.commit()
        finally:
            self._file.close()

    def find(self, sentences: Collection[str]) -> dict[str, str]:
        """Return the translations there are."""
        keys = {_key(sentence): sentence for sentence in sentences}
        marks = ",".join("?" * len(keys))
        # As bytes: a text that is no UTF-8 any more would end the whole query.
        found = self._file.execute(
            f"SELECT sentence, CAST(line AS BLOB), crc32 FROM translations WHERE sentence IN ({marks})",  # nosec B608  # ?,?
            list(keys),
        ).fetchall()
        damaged = {key for key, line, noted in found if _checksum(key, line) != noted}
        if damaged and not self._damaged:
            warnings.warn(f"{self._path}: damaged translations are made again", stacklevel=2)
        self._damaged |= damaged
        whole = {keys[key]: line.decode() for key, line, _ in found if key not in damaged}
        unsaved = {sentence: self._unsaved[sentence] for sentence in sentences if sentence in self._unsaved}
        return whole | unsaved

    def save(self, batch: Batch) -> None:
        """Keep translations: on the disk within `SAVE_EVERY` seconds, or when the store is closed."""
        self._unsaved.update(batch)
        if time.monotonic() - self._saved >= SAVE_EVERY:
            self.commit()

    def commit(self) -> None:
        """Write what is not yet on the disk."""
        lines = sorted((_key(sentence), line) for sentence, line in self._unsaved.items())
        rows = [(key, line, _checksum(key, line.encode())) for key, line in lines]
        again = [(key,) for key, _ in lines if key in self._damaged]
        with self._file:
            self._file.executemany("DELETE FROM translations WHERE sentence = ?", again)
            self._file.executemany("INSERT OR IGNORE INTO translations VALUES (?, ?, ?)", rows)
        self._unsaved.clear()
        self._saved = time.monotonic()

    def _add_checksums(self) -> None:
        """Give those of an earlier version, which had none, the checksums of what they hold."""
        if self._has_checksums():
            return
        self._file.create_function("checksum", 2, _checksum, deterministic=True)
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            if not self._has_checksums():  # another process may have done the same meanwhile
                self._file.execute("ALTER TABLE translations ADD COLUMN crc32 INTEGER")
                self._file.execute("UPDATE translations SET crc32 = checksum(sentence, CAST(line AS BLOB))")

    def _has_checksums(self) -> bool:
        return "crc32" in {column[1] for column in self._file.execute("PRAGMA table_info(translations)")}


def _key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode()).digest()


def _checksum(key: bytes, line: bytes) -> int:
    return zlib.crc32(line, zlib.crc32(key))
