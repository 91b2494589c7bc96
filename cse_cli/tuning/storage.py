"""Where studies are kept: a SQLite file each in the state directory, or any database that Optuna can use."""

from __future__ import annotations

import socket
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from cse_cli.core.environment import without_password
from cse_cli.core.paths import home
from registry.errors import CseError, TrackingError
from registry.paths import expand_user, make_folder

SUFFIX = ".db"
_MAKING_SECONDS = 5.0
_CONNECT_SECONDS = 8
_BUSY_SECONDS = 60
_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_ARGUMENTS: Final = {
    "postgresql+psycopg": {"connect_timeout": _CONNECT_SECONDS},
    "sqlite": {"timeout": _BUSY_SECONDS},
}
"""Of each driver's own function that connects."""
_RACES = (IntegrityError, OperationalError, ProgrammingError)
"""What opening a database raises while another process makes its tables."""
_FORMS = "use postgresql://user:password@host/database for many machines, or sqlite:///FILE.db for one"

# The recipe's own values may lie outside a range, Wilcoxon's pruner is experimental, and a resumed run reports some
# steps again: all are intended.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
warnings.filterwarnings("ignore", message="The reported value is ignored")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the driver reports failures, without a traceback


@dataclass(frozen=True)
class Address:
    """Where a study is kept.

    Args:
        url: Of the database.
        own: The study's name where the database is its file in the state directory, else "".
    """

    url: URL
    own: str = ""

    @property
    def file(self) -> Path | None:
        """The database, where it is a file."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    @property
    def shown(self) -> str:
        """The address without its password: for messages and records."""
        if self.own:
            return str(self.file)
        whole = self.url.set(drivername=self.url.get_backend_name()).render_as_string(hide_password=False)
        return without_password(whole)

    def locks(self, name: str) -> Path:
        """Return the directory of the lock files of a study that is kept here."""
        return folder() / name / ("locks" if self.own else f"locks-{zlib.crc32(self.shown.encode()):08x}")

    def exists(self) -> bool:
        """Return whether there can be a study: without its file there is none."""
        return self.file is None or self.file.exists()

    def open(self) -> BaseStorage:
        """Open the storage, made on first use.

        Raises:
            TrackingError: It does not answer, or cannot be written.
        """
        try:
            return self._open()
        except ImportError as error:
            raise TrackingError(
                f"--storage: {self.shown} needs a driver that is not installed",
                "pip install 'cse-registry[postgres]'" if self.url.get_backend_name() == "postgresql" else str(error),
            ) from error
        except RuntimeError as error:  # Optuna's error for tables that it did not make
            raise TrackingError(
                f"--storage: {self.shown} belongs to another program or another Optuna: {error}",
                "use a database of its own; MLflow and Optuna cannot share one",
            ) from error
        except (OSError, SQLAlchemyError) as error:
            raise TrackingError(
                f"--storage: {self.shown} cannot be opened: {first_line(error)}",
                "copy it back from a backup, or give this search another --name; `cse runs ls` has its finished trials"
                if self.own
                else "check that it is there and can be written; `cse tune` without --storage needs no server",
            ) from error

    def _open(self) -> BaseStorage:
        host, port = self.url.host, self.url.port or _PORTS.get(self.url.get_backend_name())
        if self.own and self.file is not None:
            make_folder(self.file.parent)
            if _stays_empty(self.file):
                warnings.warn(f"{self.file} is empty: its trials are lost, and the search begins anew", stacklevel=4)
        if host and port and not host.startswith("/"):
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        arguments = {"pool_pre_ping": self.file is None, "connect_args": _ARGUMENTS.get(self.url.drivername, {})}
        for wait in (0.5, 1.0):
            with suppress(*_RACES):
                return RDBStorage(self.url.render_as_string(hide_password=False), arguments)
            time.sleep(wait)
        return RDBStorage(self.url.render_as_string(hide_password=False), arguments)


def _stays_empty(file: Path) -> bool:
    """Return whether a database has lost its content; one that another process is making is empty for a moment."""
    until = time.monotonic() + _MAKING_SECONDS
    while file.is_file() and not file.stat().st_size:
        if time.monotonic() > until:
            return True
        time.sleep(0.1)
    return False


def address(storage: str | None, name: str) -> Address:
    """Return where a study is kept, without opening it.

    Args:
        storage: The value of `--storage`; None is a file in the state directory.
        name: Of the study.

    Raises:
        CseError: It is no address of a database.
    """
    if storage is None:
        return Address(URL.create("sqlite", database=str(folder() / f"{name}{SUFFIX}")), name)
    if "://" not in storage:
        raise CseError(
            f"--storage: '{storage}' is not an address",
            f"use sqlite:///{storage.removesuffix(SUFFIX)}.db, or leave out --storage",
        )
    try:
        url = make_url(storage)
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect()
    except NoSuchModuleError as error:
        raise CseError(f"--storage: '{storage.partition('://')[0]}' is not supported", _FORMS) from error
    except ArgumentError as error:
        raise CseError(f"--storage: '{without_password(storage)}' is not an address", _FORMS) from error
    if url.get_backend_name() != "sqlite":
        return Address(url)
    if not url.database or url.database == ":memory:":
        raise CseError(f"--storage: '{without_password(storage)}' names no file", _FORMS)
    return Address(url.set(database=str(expand_user(Path(url.database)).absolute())))


@contextmanager
def answering(storage: str | None, name: str) -> Iterator[None]:
    """Turn what Optuna raises where a storage goes away, as a server that is killed, into one message.

    Args:
        storage: The value of `--storage`.
        name: Of the study; "" where it is not known yet.

    Raises:
        TrackingError: It does not answer any more.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        shown = address(storage, name).shown if storage or name else str(folder())
        raise TrackingError(
            f"--storage: {shown} does not answer any more: {first_line(error.__cause__ or error)}",
            "the study is kept there: the same command goes on with it",
        ) from error


def folder() -> Path:
    """Return where the studies of this machine are kept, one file each."""
    return home() / "tuning"


def study_names(storage: str | None) -> list[str]:
    """Return the studies that a storage has; nothing is created."""
    if storage is None:
        return sorted(path.name.removesuffix(SUFFIX) for path in folder().glob(f"*{SUFFIX}"))
    place = address(storage, "")
    return sorted(optuna.get_all_study_names(place.open())) if place.exists() else []


def first_line(error: BaseException) -> str:
    """Return the first line of what a database says."""
    return without_password(str(error).strip().partition("\n")[0])
