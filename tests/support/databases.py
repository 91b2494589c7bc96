"""SQLite databases for tests: MLflow's tables are made once a session, and no disk is waited for."""

import sqlite3
from functools import cache
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from cse_cli.mirrors.mlflow import create_database


@cache
def created(file: Path) -> bytes:
    """Return a database with MLflow's tables, made at `file`."""
    create_database(file)
    return file.read_bytes()


def do_not_wait(connection: sqlite3.Connection, _record: object) -> None:
    """Let a connection return before its data is on the disk."""
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = MEMORY")


@cache
def wait_for_no_disk() -> None:
    """Let all SQLite connections of this process leave their pages to the system."""
    event.listen(Engine, "connect", do_not_wait)


@cache
def read_revisions_once() -> None:
    """Let MLflow look through its migrations once in this process, not whenever a store is opened."""
    from mlflow.store.db import utils

    utils._get_latest_schema_revision = cache(utils._get_latest_schema_revision)
