"""Open MLflow's tracking store. `cse` creates the database in the state directory and replaces an unusable one."""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import event
from sqlalchemy.engine import Engine, make_url

from cse_cli.core.paths import home
from cse_cli.mirrors import location
from cse_cli.mirrors.mirror import GoneError, Target
from cse_cli.mirrors.send import reason as first_line
from cse_cli.mirrors.send import warn
from cse_cli.runs.lock import FileLock
from registry.errors import TrackingError
from registry.paths import make_folder

BUSY_SECONDS = 20.0
"""Longest time to wait for another program that has locked the database."""
_LOCK_SECONDS = 120.0

EXPERIMENT_TAG = "cse.runs"
"""Tag of an experiment that contains runs of `cse`."""
_DATABASE_TAG = "cse.database"
_HOME_TAG = "cse.home"
_DEFAULT = "0"
"""Experiment that exists in every MLflow database. Its tags identify the database."""

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.ERROR)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints tracebacks of errors that it raises


@dataclass(frozen=True)
class Store:
    """An open tracking store. If it is remote, a server stores the artifacts."""

    client: MlflowClient
    target: Target
    is_remote: bool = False

    def experiment(self, name: str) -> str:
        """Return the ID of an experiment, and create it if it does not exist."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            artifacts = None if self.is_remote else location.artifacts().as_uri()
            try:
                return str(self.client.create_experiment(name, artifacts, {EXPERIMENT_TAG: "true", VIEW_TAG: view()}))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)  # another process may have created it
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise GoneError(
                f"its experiment '{name}' was deleted (to restore it: "
                f"`mlflow experiments restore -x {found.experiment_id}`)"
            )
        if found.tags.get(EXPERIMENT_TAG) != "true":
            self.client.set_experiment_tag(found.experiment_id, VIEW_TAG, view())
            self.client.set_experiment_tag(found.experiment_id, EXPERIMENT_TAG, "true")
        return str(found.experiment_id)


def open_store(address: str | None = None) -> Store:
    """Open the tracking store. Create its database if it is the one in the state directory."""
    address = address or location.uri()
    try:
        return _open_own(address) if location.is_own(address) else _open(address)
    except TrackingError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy, alembic and database drivers raise different exceptions
        raise TrackingError(
            f"cannot use the tracking store {location.shown(address)}: {reason(error)}",
            _advice(address, error),
            code="mirrors.unusable_store",
        ) from error


def put_aside(why: str) -> None:
    """Rename the database in the state directory, with a warning if `why` is given. `open_store` creates a new one."""
    file = location.own_database()
    if not file.exists():
        return
    aside = file.with_name(f"{file.name}.old-{datetime.now():%Y%m%d-%H%M%S-%f}")
    file.rename(aside)
    for left in ("-journal", "-wal", "-shm"):
        file.with_name(file.name + left).unlink(missing_ok=True)
    if why:
        warn(f"{file} {why}. It was renamed to {aside.name}. A new database is created from the records")


def put_aside_if_damaged() -> None:
    """Rename the database in the state directory if SQLite finds it damaged."""
    with _locked():
        try:
            with closing(sqlite3.connect(location.own_database(), timeout=BUSY_SECONDS)) as connection:
                if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                    put_aside("is damaged")
        except sqlite3.OperationalError:
            return  # it is locked
        except sqlite3.DatabaseError:
            put_aside("is damaged")


def reason(error: BaseException) -> str:
    """Return the message of the first exception that led to an error, on one line.

    MLflow and SQLAlchemy wrap exceptions of drivers and sockets, and add advice to programmers.
    """
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return first_line(error)


# --- the database in the state directory ------------------------------------------------------------------------------


def _open_own(address: str) -> Store:
    file = location.own_database()
    with _locked():
        if file.exists() and file.stat().st_size > 0:
            try:
                check_file(file)
                store, made_in = _own_store(address)
            except sqlite3.OperationalError:
                raise  # it is locked or cannot be written
            except Exception as error:  # it is damaged or belongs to another version of MLflow
                put_aside(f"cannot be used: {reason(error)}")
            else:
                if made_in == home() or (made_in.is_dir() and made_in.samefile(home())):
                    return store
                # MLflow stores the absolute paths of artifacts.
                put_aside(f"belongs to the state directory {made_in}")
        _create(file)
        return _own_store(address)[0]


@contextmanager
def _locked() -> Iterator[None]:
    # Two processes that create a database at the same time damage it.
    lock = FileLock(home() / "mlflow.db.lock")
    if not lock.acquire(_LOCK_SECONDS):
        raise TrackingError(
            f"{home() / 'mlflow.db'} has been locked by another process for {_LOCK_SECONDS:g} s",
            "stop that process",
            code="mirrors.locked",
        )
    try:
        yield
    finally:
        lock.release()


def _own_store(address: str) -> tuple[Store, Path]:
    """Return the store, and the state directory in which its database was created."""
    client = MlflowClient(address)
    tags = client.get_experiment(_DEFAULT).tags
    target = Target(location.shown(address), tags.get(_DATABASE_TAG, ""), complete=True)
    return Store(client, target), Path(tags.get(_HOME_TAG, ""))


def _create(file: Path) -> None:
    """Create a database under another name and move it when it is complete: MLflow cannot repair a partial one."""
    for left in file.parent.glob("mlflow.db.new-*"):
        left.unlink()
    new = file.with_name(f"mlflow.db.new-{uuid4().hex}")  # a new name, because MLflow caches databases by name
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
    """Let MLflow create its tables by about forty migrations.

    SQLite does not wait for the disk in the meantime: on a busy machine that takes 5 to 9 s instead of 22 to 39 s.
    """
    event.listen(Engine, "connect", do_not_wait)
    try:
        MlflowClient(location.address_of(new)).search_experiments(max_results=1)
    finally:
        event.remove(Engine, "connect", do_not_wait)


def do_not_wait(connection: sqlite3.Connection, _record: object) -> None:
    """Let a connection return before its data is on the disk."""
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = MEMORY")


def check_file(file: Path) -> None:
    """Check that an SQLite file can be written. MLflow would retry for 100 s."""
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()


# --- other stores -----------------------------------------------------------------------------------------------------


def _open(address: str) -> Store:
    is_remote = location.is_remote(address)
    if (file := location.database(address)) is not None:
        check_file(file)
    elif not is_remote:
        _check_port(address)
    client = MlflowClient(address)
    client.search_experiments(max_results=1)
    return Store(client, Target(location.shown(address)), is_remote)


def _check_port(address: str) -> None:
    """Check that a database server accepts connections. MLflow would retry for 100 s."""
    url = make_url(address)
    port = url.port or {"postgresql": 5432, "mysql": 3306, "mssql": 1433}.get(url.get_backend_name())
    if url.host and port is not None:
        socket.create_connection((url.host, port), timeout=4).close()


def _advice(address: str, error: BaseException) -> str:
    if "locked" in reason(error):
        return "close the program that uses the database, then run this again"
    if location.is_own(address):
        return f"make {home()} writable, free disk space, or set CSE_HOME to another directory"
    local = "or unset MLFLOW_TRACKING_URI to use the database in the state directory"
    if isinstance(error, ImportError):
        return f"pip install 'cse-registry[postgres]', {local}"
    return f"start the server, or correct MLFLOW_TRACKING_URI (sqlite:///…, postgresql://… or http://…), {local}"


_NAME = "cse"
VIEW_TAG = f"mlflow.sharedViewState.{_NAME}"
_METRICS = ("eval/avg", "eval/untrained_avg", "eval/gain", "dev/spearman")
_TAGS = ("method", "encoder", "data", "seed", "cse.set")


def view() -> str:
    """Return the view: runs sorted by their average, with columns for scores, method and changed settings."""
    shown = [f"metrics.`{name}`" for name in _METRICS] + [f"tags.`{name}`" for name in _TAGS]
    state = {
        "selectedColumns": ["attributes.`Models`", *shown],
        "orderByKey": "metrics.`eval/avg`",
        "orderByAsc": False,
    }
    return json.dumps(state)


def table_page(experiment: str, tags_of_it: Mapping[str, str]) -> str:
    """Return the path of the page with the runs of an experiment."""
    # Without the first parameter, the page opens in the view for chat applications.
    page = f"experiments/{experiment}/runs?workflowType=machine_learning"
    return f"{page}&viewStateShareKey={_NAME}" if VIEW_TAG in tags_of_it else page
