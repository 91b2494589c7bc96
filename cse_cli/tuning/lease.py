"""Which process drives a study that several machines reach: written in the study, and renewed while that one lives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event, Thread
from typing import Any, Final

import psutil
from optuna import Study
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from cse_cli.core.processes import is_alive
from registry.errors import CseError

RENEW_SECONDS = 15.0
LOST_SECONDS = 60.0
"""A driver of another machine that has not renewed its lease for so long is gone."""
_WRITE_SECONDS = 1.0
"""Longer than it takes to read the attribute and write it: of two drivers that begin at once, the second one wins."""
_DRIVER: Final = "cse:driver"


@contextmanager
def lease(study: Study) -> Iterator[None]:
    """Be the only driver of a study while the block lasts.

    Raises:
        CseError: Another process drives it; the message says which one.
    """
    since, ended = datetime.now().astimezone().isoformat("T", "seconds"), Event()
    ours = {"since": since, "host": socket.gethostname(), "pid": os.getpid(), "began": _began()}

    def renew() -> None:
        while not ended.wait(RENEW_SECONDS):
            with suppress(SQLAlchemyError, StorageInternalError):  # the driver itself will notice
                write()

    def write() -> None:
        study.set_user_attr(_DRIVER, {**ours, "renewed": time.time()})

    _refuse_other(study)
    write()
    time.sleep(_WRITE_SECONDS)
    _refuse_other(study)
    Thread(target=renew, name="lease", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        with suppress(SQLAlchemyError, StorageInternalError):
            study.set_user_attr(_DRIVER, None)


def is_leased(study: Study) -> bool:
    """Return whether a living process drives a study."""
    driver = study.user_attrs.get(_DRIVER)
    return driver is not None and _lives(driver)


def _refuse_other(study: Study) -> None:
    driver = study.user_attrs.get(_DRIVER)
    if driver is not None and (driver["host"], driver["pid"]) != (socket.gethostname(), os.getpid()) and _lives(driver):
        raise CseError(
            f"search '{study.study_name}' is being done by process {driver['pid']} on {driver['host']} "
            f"since {driver['since']}",
            "one process drives a search: start that one again with more --workers, or with --on CLUSTER",
        )


def _lives(driver: dict[str, Any]) -> bool:
    if driver["host"] == socket.gethostname():
        return is_alive(driver["pid"], driver["began"])
    return bool(time.time() - driver["renewed"] < LOST_SECONDS)


def _began() -> str:
    return f"{psutil.Process().create_time():.2f}"
