"""Address of MLflow's tracking store. Does not import MLflow."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from cse_cli.core.environment import without_password
from cse_cli.core.paths import home

OWN = "sqlite:///mlflow.db"
"""Name of the database in files of the state directory, which you can move."""


def uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, or the address of the database in the state directory if it is not set."""
    return os.environ.get("MLFLOW_TRACKING_URI") or address_of(own_database())


def own_database() -> Path:
    """Return the path of the database in the state directory."""
    return home() / "mlflow.db"


def is_own(address: str) -> bool:
    """Return whether an address is that of the database in the state directory."""
    return database(address) == own_database()


def shown(address: str) -> str:
    """Return the name of a store in files and messages, without passwords."""
    return OWN if is_own(address) else without_password(address)


def artifacts() -> Path:
    """Return the directory of the artifacts if no server stores them."""
    return home() / "artifacts"


def is_remote(address: str) -> bool:
    """Return whether an address belongs to a server, which stores the artifacts itself."""
    return address.startswith(("http://", "https://"))


def address_of(file: Path) -> str:
    """Return the address of an SQLite file."""
    # SQLAlchemy decodes "%" and starts its options at "?". Both can be part of a path.
    return "sqlite:///" + str(file).replace("%", "%25").replace("?", "%3F")


def database(address: str) -> Path | None:
    """Return the SQLite file of an address, or None for another kind of store."""
    prefix = "sqlite:///"
    return Path(unquote(address[len(prefix) :].partition("?")[0])) if address.startswith(prefix) else None


def local_folder(address: str) -> Path | None:
    """Return the local directory of an artifact address, or None if a server stores the artifacts."""
    parts = urlparse(address)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
