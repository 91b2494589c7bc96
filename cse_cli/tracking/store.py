"""Opens the tracking store: the first time under a lock, and within ten seconds or with the reason why not."""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

from alembic.util.exc import CommandError
from filelock import FileLock
from filelock import Timeout as LockTimeout
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from sqlalchemy import event
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from cse_cli.core.environment import without_password
from cse_cli.core.formatting import counted
from cse_cli.core.paths import home, runs
from cse_cli.tracking import location, tags
from cse_cli.tracking.moved import follow_move
from cse_cli.tracking.pages import VIEW_TAG, view
from registry.errors import TrackingError
from registry.paths import make_folder

# What MLflow raises when a store does not take a call: its own, a broken connection, a full disk.
REFUSED = (MlflowException, OSError)
PREFLIGHT_SECONDS = 8.0
_LOCK_SECONDS = 120.0
BUSY_SECONDS = 20.0

T = TypeVar("T")

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.ERROR)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints the traceback of what it raises


@dataclass(frozen=True)
class Store:
    """An open store."""

    uri: str
    client: MlflowClient

    def experiments(self) -> dict[str, str]:
        """Return id → name of the experiments that have our runs."""
        ours = every_page(
            lambda token: self.client.search_experiments(
                filter_string=f"tags.`{tags.EXPERIMENT}` = 'true'", page_token=token
            )
        )
        found = {str(one.experiment_id): str(one.name) for one in ours}
        for name in {location.EXPERIMENT, location.experiment()} - set(found.values()):  # made before they were tagged
            one = self.client.get_experiment_by_name(name)
            if one is not None and one.lifecycle_stage == "active":
                found[str(one.experiment_id)] = name
        return found

    def experiment(self, name: str) -> str:
        """Return the id of an experiment, made where it is new, and from now on one of `experiments`.

        Raises:
            TrackingError: It has been deleted.
        """
        found = self.client.get_experiment_by_name(name)
        if found is None:
            artifacts = None if location.is_remote(self.uri) else location.artifacts().as_uri()
            try:
                marks = {tags.EXPERIMENT: "true", VIEW_TAG: view()}
                return str(self.client.create_experiment(name, artifacts, marks))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)  # another process may have been first
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"the experiment '{name}' in {without_password(self.uri)} has been deleted",
                f"restore it with 'mlflow experiments restore -x {found.experiment_id}', or name another one: "
                "--experiment",
            )
        if found.tags.get(tags.EXPERIMENT) != "true":
            self.client.set_experiment_tag(found.experiment_id, VIEW_TAG, view())
            self.client.set_experiment_tag(found.experiment_id, tags.EXPERIMENT, "true")
        return str(found.experiment_id)


def every_page(search: Callable[[str | None], PagedList[Any]]) -> Iterator[Any]:
    """Yield what a search of MLflow finds, page by page; it is called with the token of a page."""
    token: str | None = None
    while True:
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return


@contextmanager
def patience(seconds: int, retries: int = 0) -> Iterator[None]:
    """Limit how long MLflow waits for a server; it reads these settings at every request."""
    wanted = {"MLFLOW_HTTP_REQUEST_TIMEOUT": str(seconds), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(retries)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def answering() -> Iterator[None]:
    """Turn what MLflow raises where a store does not take a call into one message.

    Raises:
        TrackingError: The store did not take it.
    """
    try:
        yield
    except REFUSED as error:
        raise not_done(error) from error


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what `call` does, or raise TimeoutError: name look-up has no time limit of its own."""
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


def open_store(address: str | None = None) -> Store:
    """Open the store, creating it on first use.

    Raises:
        TrackingError: It does not answer, cannot be written, or belongs to another MLflow.
    """
    address = address or location.uri()
    try:
        if location.is_remote(address):
            with patience(4):
                return within(PREFLIGHT_SECONDS, lambda: _open(address))
        return _open_locked(address)
    except LockTimeout as error:
        raise TrackingError(
            f"the tracking store {without_password(address)} has been locked by another process for "
            f"{_LOCK_SECONDS:g} s",
            f"end that process, or remove {error.lock_file} if there is none",
        ) from error
    except (*REFUSED, SQLAlchemyError, CommandError, sqlite3.Error, ImportError, UnicodeError) as error:
        raise cannot_open(address, error) from error


def _open_locked(address: str) -> Store:
    # Two processes creating the same database at once leave it broken for good, also a PostgreSQL one.
    file = location.database(address)
    lock = Path(f"{file}.lock") if file is not None else home() / "store.lock"
    make_folder(lock.parent)
    try:
        held = FileLock(lock, timeout=_LOCK_SECONDS).acquire()
    except OSError as error:
        if file is not None and file.exists() and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return _open(address)  # to be read, as an archive is; what writes is told by the database
        raise
    with held:
        if file is not None:
            if not location.exists(address):
                _make(file)
            _check_file(file)
            follow_move(file)
        else:
            within(PREFLIGHT_SECONDS, lambda: _check_server(address))
        return _open(address)


def demand_not_lost(address: str) -> None:
    """Refuse to say that there are no runs where the state directory's database is gone, and folders of runs are there.

    Raises:
        TrackingError: There are.
    """
    if location.database(address) == location.own_database() and (lost := len([*runs().glob("*/run.json")])):
        raise TrackingError(
            f"the tracking store {location.own_database()} is gone; the folders of {counted(lost, 'run')} are there",
            "`cse doctor --repair` records them again",
        )


def _make(file: Path) -> None:
    """Make a database beside its place and put it there when it is whole: a half-made one is broken for good."""
    for left in file.parent.glob(f"{glob.escape(file.name)}.new-*"):
        left.unlink()
    new = file.with_name(f"{file.name}.new-{uuid4().hex}")  # MLflow keeps what it has of a name it once had
    _check_file(new)
    _migrate(new)
    with new.open("rb+") as whole:
        os.fsync(whole.fileno())
    new.replace(file)


def _migrate(new: Path) -> None:
    """Have MLflow make its tables, by some forty migrations.

    SQLite does not wait for the disk meanwhile, since nobody needs half of them: on a busy machine that takes 5 to 9 s
    instead of 22 to 39.
    """
    event.listen(Engine, "connect", _do_not_wait)
    try:
        MlflowClient(tracking_uri=location.of_database(new)).search_experiments(max_results=1)
    finally:
        event.remove(Engine, "connect", _do_not_wait)


def _do_not_wait(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = MEMORY")


def _check_file(file: Path) -> None:
    # MLflow tries for 100 s to open what cannot be opened.
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()


def _check_server(address: str) -> None:
    url = make_url(address)
    if url.host:
        port = url.port or {"postgresql": 5432, "mysql": 3306, "mssql": 1433}.get(url.get_backend_name())
        if port is not None:
            socket.create_connection((url.host, port), timeout=4).close()


def _open(address: str) -> Store:
    store = Store(address, MlflowClient(tracking_uri=address))
    store.client.search_experiments(max_results=1)
    return store


_LOCAL_ONLY = "unset MLFLOW_TRACKING_URI to record on this machine instead"
_NO_STORE = ("maintenance mode", "Could not parse SQLAlchemy URL", "unsupported URI", "Could not find a registered")
_DAMAGED = (
    "malformed",
    "not a database",
    "unsupported file format",
    "no such table",
    "no such column",
    "UTF-8",
    "'utf-8'",
)
_OTHER_SCHEMA = ("out-of-date database schema", "Can't locate revision")


def cannot_open(address: str, error: BaseException) -> TrackingError:
    """Return the error to show for what MLflow, SQLAlchemy or the system said about a store."""
    text = str(error)
    shown = without_password(address)
    if isinstance(error, ImportError):
        return TrackingError(
            f"the tracking store {shown} needs a database driver that is not installed: {text}",
            f"pip install 'cse-registry[postgres]', name the driver (postgresql+psycopg2://…), or {_LOCAL_ONLY}",
        )
    if any(sign in text for sign in _NO_STORE):
        return TrackingError(
            f"MLFLOW_TRACKING_URI={shown!r} is not a store that MLflow writes",
            f"use sqlite:///<absolute path>, postgresql://… or http://…, or {_LOCAL_ONLY}",
        )
    if any(sign in text for sign in _OTHER_SCHEMA):
        return TrackingError(
            f"the tracking store {shown} was made by another version of MLflow: {reason(error)}",
            "keep a copy, then run 'mlflow db upgrade' on it, or set CSE_HOME to a fresh folder",
        )
    if is_busy(error):
        return locked(address)
    if any(sign in text for sign in _DAMAGED):
        return damaged(address, error)
    if location.database(address) is None:
        return TrackingError(
            f"the tracking server {shown} does not answer: {reason(error)}",
            f"start it, correct MLFLOW_TRACKING_URI, or {_LOCAL_ONLY}",
        )
    return TrackingError(
        f"the tracking store {shown} cannot be opened: {reason(error)}",
        f"check that {home()} can be written and has space, or set CSE_HOME to another folder",
    )


def damaged(address: str, error: BaseException) -> TrackingError:
    """Return the error to show for a database that is none any more."""
    own = location.database(address) == location.own_database()
    return TrackingError(
        f"the tracking store {without_password(address)} is damaged: {reason(error)}",
        "`cse doctor --repair` makes it again from the folders of its runs, and keeps the damaged file"
        if own
        else f"put a copy of it back, or {_LOCAL_ONLY}",
    )


def locked(address: str) -> TrackingError:
    """Return the error to show for a database that another program does not give up."""
    return TrackingError(
        f"the tracking store {without_password(address)} has been locked by another program for a while",
        "end what has it open, as an SQLite shell or a copy in the making, and run this again",
    )


def is_busy(error: BaseException) -> bool:
    """Tell whether a database is locked by another program."""
    return "database is locked" in str(error) or "database table is locked" in str(error)


def not_done(error: BaseException) -> TrackingError:
    """Return the error to show where an open store did not do what it was asked for."""
    address = location.uri()
    if is_busy(error):
        return locked(address)
    if any(sign in str(error) for sign in _DAMAGED):
        return damaged(address, error)
    if "readonly database" in str(error):
        return TrackingError(
            f"the tracking store {without_password(address)} cannot be written",
            "use a copy that can: set CSE_HOME to it",
        )
    return TrackingError(
        f"the tracking store {without_password(address)} did not do it: {reason(error)}", "run it again"
    )


def reason(error: BaseException) -> str:
    """Return the part of a store's error that says what is wrong, on one line."""
    text = re.sub(r"^\(raised as a result of .*\)\n", "", str(error).strip())  # SQLAlchemy's advice to programmers
    first = text.partition("\n")[0] or type(error).__name__
    first = re.sub(r"^(\w+: )?\([\w.]*Error\) ", "", first)  # and its names of the driver's errors
    cause = re.search(r"Caused by \w+\(.*?: (.*?)['\")]*$", first)
    return without_password(cause.group(1) if cause else first)[:200]
