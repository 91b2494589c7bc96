"""Address of MLflow's tracking store. Does not import MLflow."""

from __future__ import annotations

import os
from pathlib import Path

from cse_cli.core.paths import home


def uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, or the address of the database in the state directory if it is not set."""
    return os.environ.get("MLFLOW_TRACKING_URI") or address_of(database())


def is_own() -> bool:
    """Return whether the tracking store is the database in the state directory."""
    return not os.environ.get("MLFLOW_TRACKING_URI")


def is_remote() -> bool:
    """Return whether the tracking store is a server, which stores the artifacts itself."""
    return uri().startswith(("http://", "https://"))


def database() -> Path:
    """Return the path of the database in the state directory."""
    return home() / "mlflow.db"


def artifacts() -> Path:
    """Return the directory of the artifacts if no server stores them."""
    return home() / "artifacts"


def address_of(file: Path) -> str:
    """Return the address of an SQLite file."""
    # SQLAlchemy decodes "%" and starts its options at "?". Both can be part of a path.
    return "sqlite:///" + str(file).replace("%", "%25").replace("?", "%3F")
