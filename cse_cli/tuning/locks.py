"""Locks that end with the process that holds them, however that ends."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool


class Lock:
    """Held while a worker looks at a study and takes a trial: nobody else counts meanwhile.

    It ends with the process that holds it, however that ends.
    """

    def __init__(self) -> None:
        self._held = False

    def acquire(self) -> None:
        """Wait until it is ours."""
        self._take()
        self._held = True

    def release(self) -> None:
        """Let it go; nothing happens where it is not held."""
        if self._held:
            self._held = False
            self._give()

    def _take(self) -> None:
        raise NotImplementedError

    def _give(self) -> None:
        raise NotImplementedError


class FileClaim(Lock):
    """A lock on a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = FileLock(path)

    def _take(self) -> None:
        self._file.acquire()

    def _give(self) -> None:
        self._file.release()


class DatabaseClaim(Lock):
    """An advisory lock of PostgreSQL: the server ends it with the connection."""

    def __init__(self, url: URL, name: str) -> None:
        super().__init__()
        # A connection of its own, open only while the lock is held: an idle one would not survive a long trial.
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._key = zlib.crc32(f"cse/{name}".encode())
        self._connection: Any = None

    def _take(self) -> None:
        connection = self._engine.connect()
        try:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": self._key})
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _give(self) -> None:
        with suppress(SQLAlchemyError):  # a connection that broke has ended the lock
            self._connection.close()


class JournalLock:
    """Guards a journal: ends with its process, and takes away the half line of one that was killed while it wrote.

    Optuna's own lock is a file that a killed process leaves, and half a line would make the journal unreadable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = FileLock(f"{path}.lock")

    def acquire(self) -> bool:
        """Wait until it is ours."""
        self._file.acquire()
        with suppress(FileNotFoundError), self._path.open("rb+") as file:
            size = file.seek(0, 2)
            if size and not _ends_a_line(file, size):
                file.truncate(_after_last_line(file, size))
        return True

    def release(self) -> None:
        """Let it go."""
        self._file.release()


def _ends_a_line(file: Any, size: int) -> bool:
    file.seek(size - 1)
    return bool(file.read(1) == b"\n")


def _after_last_line(file: Any, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        place = file.read(end - start).rfind(b"\n")
        if place >= 0:
            return int(start + place + 1)
        end = start
    return 0


@contextmanager
def held(lock: Lock) -> Iterator[None]:
    """Hold a lock while the block lasts, or until it is released before."""
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
