"""Where studies are kept: a journal file on this machine, or a PostgreSQL database for many machines.

Locks that end with the process that holds them, however that ends.
"""

from __future__ import annotations

import socket
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from cse_cli.core.paths import home
from registry.errors import CseError, TrackingError

HEARTBEAT_SECONDS = 60
GRACE_SECONDS = 180
"""A trial of another machine that has been silent for so long is taken for lost."""
SUFFIX = ".journal"
_CONNECT_SECONDS = 8
_DIALECTS = ("postgresql", "postgres", "postgresql+psycopg")

# The recipe's own values may lie beside a range, and Wilcoxon's pruner is called experimental: both knowingly.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # what fails is told by the worker, without a traceback


@dataclass(frozen=True)
class Address:
    """Where a study is kept.

    Args:
        database: Of PostgreSQL, else None.
        file: The journal, else None.
    """

    database: URL | None
    file: Path | None

    @property
    def shown(self) -> str:
        """The address without its password: for messages and records."""
        if self.database is None:
            return str(self.file)
        return self.database.set(drivername="postgresql").render_as_string(hide_password=True)

    @property
    def many_machines(self) -> bool:
        """Whether workers of other machines can join."""
        return self.database is not None

    def lock(self, name: str) -> Lock:
        """Return the lock that a study's workers share."""
        if self.database is not None:
            return DatabaseClaim(self.database, name)
        return FileClaim(Path(f"{self._journal}.claim"))

    @property
    def _journal(self) -> Path:
        if self.file is None:
            raise ValueError("a database has no journal")
        return self.file

    def exists(self) -> bool:
        """Return whether there can be a study: a journal that is not there has none."""
        return self.file is None or self.file.exists()

    def open(self) -> BaseStorage:
        """Open the storage, made on first use.

        Raises:
            TrackingError: It does not answer, or cannot be written.
        """
        try:
            return self._opened()
        except ImportError as error:
            raise TrackingError(
                f"--storage: {self.shown} needs a driver that is not installed", "pip install 'cse-registry[postgres]'"
            ) from error
        except (OSError, SQLAlchemyError) as error:
            first = str(error).strip().partition("\n")[0]
            raise TrackingError(
                f"--storage: {self.shown} cannot be opened: {first}",
                "check that it is there and can be written; `cse tune` without --storage needs no server",
            ) from error

    def _opened(self) -> BaseStorage:
        if self.database is None:
            self._journal.parent.mkdir(parents=True, exist_ok=True)
            return JournalStorage(JournalFileBackend(str(self._journal), lock_obj=JournalLock(self._journal)))
        self._check_server()
        with held(self.lock("tables")):  # two processes that make the tables at once leave neither with all of them
            try:
                return RDBStorage(
                    self.database.render_as_string(hide_password=False),
                    engine_kwargs={"pool_pre_ping": True, "connect_args": {"connect_timeout": _CONNECT_SECONDS}},
                    heartbeat_interval=HEARTBEAT_SECONDS,
                    grace_period=GRACE_SECONDS,
                )
            except RuntimeError as error:  # Optuna's word for tables that it did not make
                raise TrackingError(
                    f"--storage: {self.shown} belongs to another program or another Optuna: {error}",
                    "use a database of its own; MLflow and Optuna cannot share one",
                ) from error

    def _check_server(self) -> None:
        if self.database is not None and self.database.host and not self.database.host.startswith("/"):
            place = (self.database.host, self.database.port or 5432)
            socket.create_connection(place, timeout=_CONNECT_SECONDS).close()


def address(storage: str | None, name: str) -> Address:
    """Return where a study is kept, without opening it.

    Args:
        storage: As `--storage` says; None is a journal in the state directory.
        name: Of the study.

    Raises:
        CseError: An address that is neither PostgreSQL's nor a journal's.
    """
    if storage is None:
        return Address(None, folder() / f"{name}{SUFFIX}")
    if "://" not in storage:
        return Address(None, _journal_file(storage))
    try:
        url = make_url(storage)
    except ArgumentError as error:
        raise CseError(f"--storage: '{_hidden(storage)}' is not an address", _FORMS) from error
    if url.drivername not in _DIALECTS:
        raise CseError(f"--storage: '{url.drivername}' is not supported", _FORMS)
    return Address(url.set(drivername="postgresql+psycopg"), None)


_FORMS = "use postgresql://user:password@host/database for many machines, or a file that ends in .journal for one"


def folder() -> Path:
    """Return where the journals of this machine are kept, one file a study."""
    return home() / "tuning"


def names(storage: str | None) -> list[str]:
    """Return the studies that a storage has; nothing is created."""
    if storage is None:
        return sorted(path.name.removesuffix(SUFFIX) for path in folder().glob(f"*{SUFFIX}"))
    place = address(storage, "")
    return sorted(optuna.get_all_study_names(place.open())) if place.exists() else []


def _journal_file(storage: str) -> Path:
    if not storage.endswith(SUFFIX):
        raise CseError(f"--storage: '{storage}' is neither an address nor a journal", _FORMS)
    return Path(storage).expanduser().absolute()


def _hidden(storage: str) -> str:
    scheme, _, rest = storage.partition("://")
    return f"{scheme}://***@{rest.rpartition('@')[2]}" if "@" in rest else storage


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
