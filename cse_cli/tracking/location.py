"""Where the tracking store is. Imports no MLflow."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from cse_cli.core.paths import home

EXPERIMENT = "cse"
"""The one experiment of all runs before they were sorted by recipe."""

OWN = "sqlite:///mlflow.db"
"""How a file of the state directory names the database that lies there too."""


def uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, else the one database in the state directory, by its absolute path."""
    if address := os.environ.get("MLFLOW_TRACKING_URI"):
        return address
    return of_database(own_database())


def own_database() -> Path:
    """Return the file of the database in the state directory, used where no `MLFLOW_TRACKING_URI` is set."""
    return home() / "mlflow.db"


def kept(address: str) -> str:
    """Return how a file of the state directory names a store: its own without the folder, which may be moved."""
    return OWN if database(address) == own_database() else address


def found(name: str) -> str:
    """Return the address that `kept` has named."""
    return of_database(own_database()) if name == OWN else name


def experiment(usual: str = EXPERIMENT) -> str:
    """Return `MLFLOW_EXPERIMENT_NAME`, else the one that is usual."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or usual


def artifacts() -> Path:
    """Return where artifacts of a store without a server of its own are kept."""
    return home() / "artifacts"


def is_remote(address: str) -> bool:
    """Return whether a server answers at this address, and so keeps the artifacts itself."""
    return address.startswith(("http://", "https://"))


def of_database(file: Path) -> str:
    """Return the address of an sqlite store."""
    # SQLAlchemy decodes "%" and starts its options at "?"; both may stand in a path.
    return "sqlite:///" + str(file).replace("%", "%25").replace("?", "%3F")


def database(address: str) -> Path | None:
    """Return the file of an sqlite store."""
    prefix = "sqlite:///"
    return Path(unquote(address[len(prefix) :].partition("?")[0])) if address.startswith(prefix) else None


def exists(address: str) -> bool:
    """Return whether there can be anything to read; a database file that is not there, or empty, has no runs."""
    file = database(address)
    return file is None or (file.exists() and file.stat().st_size > 0)
