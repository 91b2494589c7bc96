"""Storage of studies: one SQLite file each in the state directory, or any database that Optuna supports."""

from __future__ import annotations

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
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from cse_cli.core.environment import without_password
from cse_cli.core.paths import home
from registry.errors import CseError, TrackingError
from registry.paths import expand_user, make_folder

SUFFIX = ".db"
_ARGUMENTS: Final = {"postgresql+psycopg": {"connect_timeout": 8}, "sqlite": {"timeout": 60}}
"""Arguments of each driver's connect function, in seconds."""
_FORMS = "use sqlite:///FILE.db or postgresql://user:password@host/database"

# Intended: the recipe's values outside a range, Wilcoxon's pruner, and a resumed run that reports some steps again.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
warnings.filterwarnings("ignore", message="The reported value is ignored")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the driver reports failures without a traceback


@dataclass(frozen=True)
class Address:
    """Address of a study. `own`: the database is the search's own file in the state directory."""

    url: URL
    own: bool = False

    @property
    def file(self) -> Path | None:
        """Path of the database, or None if it is a server."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    @property
    def shown(self) -> str:
        """Address without password, for messages and records."""
        if self.own:
            return str(self.file)
        whole = self.url.set(drivername=self.url.get_backend_name()).render_as_string(hide_password=False)
        return without_password(whole)

    def locks(self, name: str) -> Path:
        """Return the directory of the lock files of a search with this storage."""
        return directory() / name / ("locks" if self.own else f"locks-{zlib.crc32(self.shown.encode()):08x}")

    def exists(self) -> bool:
        """Return whether the database can exist."""
        return self.file is None or self.file.exists()

    def is_emptied(self) -> bool:
        """Return whether the database has lost its content. A new one is not empty once `choosing` is released."""
        return self.own and self.file is not None and self.file.is_file() and not self.file.stat().st_size

    def open(self) -> BaseStorage:
        """Open the storage. Its tables are created on first use."""
        try:
            if self.own:
                make_folder(directory())
            return self._open()
        except ImportError as error:
            postgres = self.url.get_backend_name() == "postgresql"
            action = "pip install 'cse-registry[postgres]'" if postgres else str(error)
            message = f"--storage: the driver of {self.shown} is not installed"
            raise TrackingError(message, action, code="tune.no_database_driver") from error
        except RuntimeError as error:  # Optuna's error for tables that it did not create
            message = f"--storage: {self.shown} has tables of another program or another version of Optuna: {error}"
            action = "use a separate database; MLflow and Optuna cannot share one"
            raise TrackingError(message, action, code="tune.foreign_database") from error
        except (OSError, SQLAlchemyError) as error:
            action = "check the address, or remove --storage to use a local file"
            if self.own:
                action = "restore it from a backup, or use another --name; `cse runs ls` lists its finished trials"
            message = f"--storage: {self.shown} cannot be opened: {first_line(error)}"
            raise TrackingError(message, action, code="tune.storage_not_opened") from error

    def _open(self) -> BaseStorage:
        url = self.url.render_as_string(hide_password=False)
        arguments = {"pool_pre_ping": self.file is None, "connect_args": _ARGUMENTS.get(self.url.drivername, {})}
        for wait in (0.5, 1.0):
            with suppress(DBAPIError):  # another process creates the tables
                return RDBStorage(url, arguments)
            time.sleep(wait)
        return RDBStorage(url, arguments)


def address(storage: str | None, name: str) -> Address:
    """Return the address of a study without opening it. Without `--storage`, it is a file in the state directory."""
    if storage is None:
        return Address(URL.create("sqlite", database=str(directory() / f"{name}{SUFFIX}")), own=True)
    shown = without_password(storage)
    try:
        url = make_url(storage)
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect()
    except NoSuchModuleError as error:
        message = f"--storage: '{storage.partition('://')[0]}' is not supported"
        raise CseError(message, _FORMS, code="tune.bad_storage") from error
    except ArgumentError as error:
        action = _FORMS if "://" in storage else f"use sqlite:///{storage.removesuffix(SUFFIX)}.db, or remove --storage"
        raise CseError(f"--storage: '{shown}' is not an address", action, code="tune.bad_storage") from error
    if url.get_backend_name() != "sqlite":
        return Address(url)
    if not url.database or url.database == ":memory:":
        raise CseError(f"--storage: '{shown}' has no file name", _FORMS, code="tune.bad_storage")
    return Address(url.set(database=str(expand_user(Path(url.database)).absolute())))


def resume_command(storage: str | None, name: str) -> str:
    """Return the command that continues a search from any directory. `storage` is the value of `--storage`."""
    option = "" if storage is None else f" --storage {address(storage, name).shown}"
    return f"cse tune --resume {name}{option}"


@contextmanager
def storage_errors(storage: str | None, name: str) -> Iterator[None]:
    """Turn the errors of a storage that stops responding into one message."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        shown = address(storage, name).shown if storage or name else str(directory())
        raise TrackingError(
            f"--storage: {shown} no longer responds: {first_line(error.__cause__ or error)}",
            "run the same command again to continue the search",
            code="tune.storage_lost",
        ) from error


def directory() -> Path:
    """Return the directory of the searches of this machine."""
    return home() / "tuning"


def search_names(storage: str | None) -> list[str]:
    """Return the names of the searches in a storage. Nothing is created."""
    if storage is None:
        return sorted(path.name.removesuffix(SUFFIX) for path in directory().glob(f"*{SUFFIX}"))
    place = address(storage, "")
    return sorted(optuna.get_all_study_names(place.open())) if place.exists() else []


def first_line(error: BaseException) -> str:
    """Return the first line of a database error, without passwords."""
    return without_password(str(error).strip().partition("\n")[0])
