"""Opens MLflow's store. The database in the state directory is created here, and replaced if it cannot be used."""

from __future__ import annotations

import glob
import logging
import os
import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import TypeVar
from uuid import uuid4

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import event
from sqlalchemy.engine import Engine, make_url

from cse_cli.core.paths import home
from cse_cli.mirrors import location
from cse_cli.mirrors.mirror import GoneError, Target
from cse_cli.mirrors.pages import VIEW_TAG, view
from cse_cli.mirrors.send import reason as first_line
from cse_cli.mirrors.send import warn
from cse_cli.runs.lock import FileLock
from registry.errors import TrackingError
from registry.paths import make_folder

PREFLIGHT_SECONDS = 8.0
"""Longest time for a server to answer. MLflow itself waits for minutes."""
BUSY_SECONDS = 20.0
"""Longest time for another program to release the database."""
_LOCK_SECONDS = 120.0

EXPERIMENT_TAG = "cse.runs"
"""Tag of an experiment, "true": it has runs of `cse`."""
_DATABASE_TAG = "cse.database"
_HOME_TAG = "cse.home"
_DEFAULT = "0"
"""Experiment that every database of MLflow has. Its tags identify the database."""

_DAMAGED = ("malformed", "not a database", "unsupported file format", "no such table", "no such column", "tf-8")
_OTHER_VERSION = ("out-of-date database schema", "Can't locate revision")

T = TypeVar("T")

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.ERROR)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints tracebacks of what it raises


@dataclass(frozen=True)
class Store:
    """An open store.

    Args:
        address: Its address, with a password if it has one.
        client: Client of MLflow.
        target: The store as mirrors know it.
        home: State directory that the database was made in, if it belongs to one.
        experiments: Name → ID of the experiments that were used.
    """

    address: str
    client: MlflowClient
    target: Target
    home: Path | None = None
    experiments: dict[str, str] = field(default_factory=dict)

    @property
    def is_remote(self) -> bool:
        """Whether a server keeps the artifacts."""
        return location.is_remote(self.address)

    def experiment(self, name: str) -> str:
        """Return the ID of an experiment, which is created if it does not exist.

        Raises:
            GoneError: If it was deleted.
        """
        if name not in self.experiments:
            self.experiments[name] = self._experiment(name)
        return self.experiments[name]

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            artifacts = None if self.is_remote else location.artifacts().as_uri()
            try:
                return str(self.client.create_experiment(name, artifacts, {EXPERIMENT_TAG: "true", VIEW_TAG: view()}))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)  # another process may have been first
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise GoneError(
                f"its experiment '{name}' was deleted there (to restore it: "
                f"`mlflow experiments restore -x {found.experiment_id}`)"
            )
        if found.tags.get(EXPERIMENT_TAG) != "true":
            self.client.set_experiment_tag(found.experiment_id, VIEW_TAG, view())
            self.client.set_experiment_tag(found.experiment_id, EXPERIMENT_TAG, "true")
        return str(found.experiment_id)


def open_store(address: str | None = None) -> Store:
    """Open the store within seconds, and create its database if it is the one in the state directory.

    Raises:
        TrackingError: If it does not answer, cannot be written or belongs to another version of MLflow.
    """
    address = address or location.uri()
    try:
        if location.is_own(address):
            return _open_own(address)
        within(PREFLIGHT_SECONDS, lambda: _check(address))
        with settings(MLFLOW_HTTP_REQUEST_TIMEOUT="4", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0"):
            return within(PREFLIGHT_SECONDS if location.is_remote(address) else _LOCK_SECONDS, lambda: _open(address))
    except TrackingError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy, alembic and drivers of databases each have exceptions of their own
        raise TrackingError(
            f"the tracking store {location.shown(address)} cannot be used: {reason(error)}", _advice(address, error)
        ) from error


def put_aside(why: str) -> Path | None:
    """Rename the database in the state directory, so that a new one is made. Runs are sent to it anew.

    Args:
        why: Reason, for the new name.
    """
    file = location.own_database()
    if not file.exists():
        return None
    aside = file.with_name(f"{file.name}.{why}-{datetime.now():%Y%m%d-%H%M%S-%f}")
    file.rename(aside)
    for left in ("-journal", "-wal", "-shm"):
        file.with_name(file.name + left).unlink(missing_ok=True)
    return aside


def put_aside_if_damaged() -> None:
    """Put the database in the state directory aside if SQLite finds it damaged."""
    with _locked():
        file = location.own_database()
        try:
            with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
                whole = connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
        except sqlite3.DatabaseError as error:
            whole = not is_damaged(error)
        if not whole:
            _put_aside("damaged", "is damaged")


def is_damaged(error: BaseException) -> bool:
    """Return whether an error means that a database is not one any longer."""
    return any(sign in str(error) for sign in _DAMAGED)


def reason(error: BaseException) -> str:
    """Return the part of an error of MLflow or SQLAlchemy that names the cause, on one line."""
    text = re.sub(r"^\(raised as a result of .*\)\n", "", str(error).strip())  # SQLAlchemy's advice to programmers
    first = text.partition("\n")[0] or type(error).__name__
    first = re.sub(r"^(\w+: )?\([\w.]*Error\) ", "", first)  # its names of the drivers' errors
    cause = re.search(r"Caused by \w+\(.*?: (.*?)['\")]*$", first)
    return first_line(OSError(cause.group(1) if cause else first))


@contextmanager
def settings(**wanted: str) -> Iterator[None]:
    """Set environment variables of MLflow, which reads them at every request."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise TimeoutError: the look-up of a host name has no time limit."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer.done():
        raise TimeoutError(f"no answer in {seconds:g} s")
    return answer.result()


# --- the database in the state directory ------------------------------------------------------------------------------


def _open_own(address: str) -> Store:
    """Open the database in the state directory. One that cannot be used is put aside, and a new one takes its place."""
    file = location.own_database()
    with _locked():
        if file.exists() and file.stat().st_size > 0:
            try:
                check_file(file)
                store = _open(address)
                if not _has_moved(store):
                    return store
                _put_aside("moved", "belongs to another place of the state directory")
            except Exception as error:
                if not is_damaged(error) and not any(sign in str(error) for sign in _OTHER_VERSION):
                    raise
                _put_aside(*(("damaged", "is damaged") if is_damaged(error) else ("version", "is of another MLflow")))
        _make(file)
        return _open(address)


@contextmanager
def _locked() -> Iterator[None]:
    # Two processes that create the same database at once break it for good.
    lock = FileLock(home() / "mlflow.db.lock")
    if not lock.acquire(_LOCK_SECONDS):
        raise TrackingError(
            f"{home() / 'mlflow.db'} has been locked by another process for {_LOCK_SECONDS:g} s", "end that process"
        )
    try:
        yield
    finally:
        lock.release()


def _put_aside(why: str, text: str) -> None:
    aside = put_aside(why)
    if aside is not None:
        warn(
            f"{location.own_database()} {text}. It is now {aside.name}, and a new one is filled from the runs' records"
        )


def _has_moved(store: Store) -> bool:
    """Return whether the database was made elsewhere: it has the absolute addresses of all artifacts."""
    made, here = store.home, home()
    return made is not None and made != here and not (made.is_dir() and made.samefile(here))


def _make(file: Path) -> None:
    """Create a database next to its place and move it there when it is complete: a half-made one is broken for good."""
    for left in file.parent.glob(f"{glob.escape(file.name)}.new-*"):
        left.unlink()
    new = file.with_name(f"{file.name}.new-{uuid4().hex}")  # MLflow remembers databases by name
    make_folder(file.parent)
    check_file(new)
    migrate(new)
    client = MlflowClient(location.address_of(new))
    client.set_experiment_tag(_DEFAULT, _DATABASE_TAG, uuid4().hex[:8])
    client.set_experiment_tag(_DEFAULT, _HOME_TAG, str(home()))
    with new.open("rb+") as complete:
        os.fsync(complete.fileno())
    new.replace(file)


def migrate(new: Path) -> None:
    """Let MLflow create its tables, by some forty migrations.

    SQLite does not wait for the disk meanwhile, since nobody needs half of the tables: on a busy machine that takes 5
    to 9 s instead of 22 to 39.
    """
    event.listen(Engine, "connect", do_not_wait)
    try:
        with settings(MLFLOW_SQLALCHEMYSTORE_POOLCLASS="NullPool"):
            MlflowClient(location.address_of(new)).search_experiments(max_results=1)
    finally:
        event.remove(Engine, "connect", do_not_wait)


def do_not_wait(connection: sqlite3.Connection, _record: object) -> None:
    """Let a connection leave its pages to the system."""
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = MEMORY")


def check_file(file: Path) -> None:
    """Check that an SQLite file can be written. MLflow would try for 100 s."""
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()


# --- any store --------------------------------------------------------------------------------------------------------


def _check(address: str) -> None:
    file = location.database(address)
    if file is not None:
        check_file(file)
    elif not location.is_remote(address):
        url = make_url(address)
        port = url.port or {"postgresql": 5432, "mysql": 3306, "mssql": 1433}.get(url.get_backend_name())
        if url.host and port is not None:
            socket.create_connection((url.host, port), timeout=4).close()


def _open(address: str) -> Store:
    own = location.is_own(address)
    # Without a pool, every transaction opens the file that is there now, also after another process replaced it.
    with settings(**({"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"} if location.database(address) else {})):
        client = MlflowClient(address)
        if not own:
            client.search_experiments(max_results=1)
            return Store(address, client, Target(location.shown(address)))
        tags = client.get_experiment(_DEFAULT).tags
    target = Target(location.shown(address), tags.get(_DATABASE_TAG, ""), complete=True)
    return Store(address, client, target, Path(tags.get(_HOME_TAG, "")))


_LOCAL = "unset MLFLOW_TRACKING_URI to use the database in the state directory"
_NO_STORE = ("maintenance mode", "Could not parse SQLAlchemy URL", "unsupported URI", "Could not find a registered")


def _advice(address: str, error: BaseException) -> str:
    """Return what to do about a store that cannot be opened."""
    text = str(error)
    if isinstance(error, ImportError):
        return f"pip install 'cse-registry[postgres]', name the driver (postgresql+psycopg2://…), or {_LOCAL}"
    if any(sign in text for sign in _NO_STORE):
        return f"use sqlite:///<absolute path>, postgresql://… or http://…, or {_LOCAL}"
    if any(sign in text for sign in _OTHER_VERSION):
        return f"keep a copy, then run `mlflow db upgrade`, or {_LOCAL}"
    if "locked" in text:
        return "end the program that has the database open, then run this again"
    if location.is_own(address):
        return f"check that {home()} can be written and has space, or set CSE_HOME to another directory"
    return f"start the server or restore the database, correct MLFLOW_TRACKING_URI, or {_LOCAL}"
