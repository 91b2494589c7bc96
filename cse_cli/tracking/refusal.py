"""Says why a store cannot be opened, in words that lead on."""

from __future__ import annotations

import re

from cse_cli.home import home
from cse_cli.tracking import location
from registry.errors import TrackingError

_LOCAL_ONLY = "unset MLFLOW_TRACKING_URI to record on this machine instead"
_NO_STORE = ("maintenance mode", "Could not parse SQLAlchemy URL", "unsupported URI", "Could not find a registered")
_OTHER_SCHEMA = ("out-of-date database schema", "Can't locate revision")


def cannot_open(address: str, error: BaseException) -> TrackingError:
    """Return the error to show for what MLflow, SQLAlchemy or the system said about a store."""
    text = str(error)
    shown = location.shown(address)
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
    if location.database(address) is None:
        return TrackingError(
            f"the tracking server {shown} does not answer: {reason(error)}",
            f"start it, correct MLFLOW_TRACKING_URI, or {_LOCAL_ONLY}",
        )
    return TrackingError(
        f"the tracking store {shown} cannot be opened: {reason(error)}",
        f"check that {home()} can be written and has space, or set CSE_HOME to another folder",
    )


def reason(error: BaseException) -> str:
    """Return the part of a store's error that says what is wrong, on one line."""
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    cause = re.search(r"Caused by \w+\(.*?: (.*?)['\")]*$", first)
    return location.shown(cause.group(1) if cause else first)[:200]
