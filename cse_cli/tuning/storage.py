"""Where studies are kept: a journal file on this machine, or a PostgreSQL database for many machines."""

from __future__ import annotations

import socket
import warnings
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from cse_cli.home import home
from cse_cli.tuning.locks import DatabaseClaim, FileClaim, JournalLock, Lock, held
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
