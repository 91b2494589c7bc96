"""Where studies are kept: a journal file on this machine, or a PostgreSQL database for many machines; and its locks.

A lock ends with the process that holds it, also when that is killed.
"""

from __future__ import annotations

import mmap
import socket
import warnings
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import optuna
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from cse_cli.core.paths import home
from registry.errors import CseError, TrackingError

HEARTBEAT_SECONDS = 60
GRACE_SECONDS = 180
"""A trial of another machine without a heartbeat for so long is taken for lost."""
SUFFIX = ".journal"
_CONNECT_SECONDS = 8
_DIALECTS = ("postgresql", "postgres", "postgresql+psycopg")
_FORMS = "use postgresql://user:password@host/database for many machines, or a file that ends in .journal for one"

# The recipe's own values may lie outside a range, and Wilcoxon's pruner is experimental: both are intended.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the worker reports failures, without a traceback


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

    def lock(self, name: str) -> FileLock | DatabaseLock:
        """Return the lock that a study's workers share."""
        if self.database is not None:
            return DatabaseLock(self.database, name)
        return FileLock(f"{self.file}.claim")

    def exists(self) -> bool:
        """Return whether there can be a study: without its journal there is none."""
        return self.file is None or self.file.exists()

    def open(self) -> BaseStorage:
        """Open the storage, made on first use.

        Raises:
            TrackingError: It does not answer, or cannot be written.
        """
        try:
            return self._open_database(self.database) if self.database is not None else self._open_journal()
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

    def _open_journal(self) -> BaseStorage:
        path = Path(str(self.file))
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalLock(path)))

    def _open_database(self, url: URL) -> BaseStorage:
        if url.host and not url.host.startswith("/"):
            socket.create_connection((url.host, url.port or 5432), timeout=_CONNECT_SECONDS).close()
        with self.lock("tables"):  # two processes that make the tables at once leave neither with all of them
            try:
                return RDBStorage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs={"pool_pre_ping": True, "connect_args": {"connect_timeout": _CONNECT_SECONDS}},
                    heartbeat_interval=HEARTBEAT_SECONDS,
                    grace_period=GRACE_SECONDS,
                )
            except RuntimeError as error:  # Optuna's error for tables that it did not make
                raise TrackingError(
                    f"--storage: {self.shown} belongs to another program or another Optuna: {error}",
                    "use a database of its own; MLflow and Optuna cannot share one",
                ) from error


def address(storage: str | None, name: str) -> Address:
    """Return where a study is kept, without opening it.

    Args:
        storage: The value of `--storage`; None is a journal in the state directory.
        name: Of the study.

    Raises:
        CseError: An address that is neither PostgreSQL's nor a journal's.
    """
    if storage is None:
        return Address(None, folder() / f"{name}{SUFFIX}")
    if "://" not in storage:
        if not storage.endswith(SUFFIX):
            raise CseError(f"--storage: '{storage}' is neither an address nor a journal", _FORMS)
        return Address(None, Path(storage).expanduser().absolute())
    try:
        url = make_url(storage)
    except ArgumentError as error:
        scheme, _, rest = storage.partition("://")
        hidden = f"{scheme}://***@{rest.rpartition('@')[2]}" if "@" in rest else storage
        raise CseError(f"--storage: '{hidden}' is not an address", _FORMS) from error
    if url.drivername not in _DIALECTS:
        raise CseError(f"--storage: '{url.drivername}' is not supported", _FORMS)
    return Address(url.set(drivername="postgresql+psycopg"), None)


def folder() -> Path:
    """Return where the journals of this machine are kept, one file a study."""
    return home() / "tuning"


def study_names(storage: str | None) -> list[str]:
    """Return the studies that a storage has; nothing is created."""
    if storage is None:
        return sorted(path.name.removesuffix(SUFFIX) for path in folder().glob(f"*{SUFFIX}"))
    place = address(storage, "")
    return sorted(optuna.get_all_study_names(place.open())) if place.exists() else []


class DatabaseLock:
    """An advisory lock of PostgreSQL, used as a `FileLock` is: the server ends it with the connection."""

    def __init__(self, url: URL, name: str) -> None:
        # A connection of its own, open only while the lock is held: an idle one would not survive a long trial.
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._key = zlib.crc32(f"cse/{name}".encode())
        self._connection: Connection | None = None

    def acquire(self) -> None:
        """Wait until it is ours."""
        connection = self._engine.connect()
        try:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": self._key})
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def release(self) -> None:
        """Let it go; nothing happens where it is not held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):  # a connection that broke has ended the lock
                connection.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class JournalLock:
    """Guards a journal, and removes the half line of a process that was killed while it wrote.

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
            if size:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    end = content.rfind(b"\n") + 1
                if end < size:
                    file.truncate(end)
        return True

    def release(self) -> None:
        """Let it go."""
        self._file.release()
