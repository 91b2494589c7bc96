"""A state directory that was moved, renamed or copied: MLflow's database has the addresses of all artifacts in full.

The addresses are written anew, where those of a reader could have been worked out instead: MLflow's pages, its loaders
(`models:/m-…`) and every new run of an old experiment go by what the database says.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from cse_cli.core.formatting import counted
from cse_cli.core.paths import home
from cse_cli.core.run_status import heard_of_lately
from cse_cli.tracking import location, tags
from cse_cli.tracking.files import local_folder

_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Table and column of whatever may lie below the artifacts' folder."""
_OURS = """
    SELECT DISTINCT artifact_location FROM experiments
    WHERE name = ? OR experiment_id IN (SELECT experiment_id FROM experiment_tags WHERE key = ?)
"""


def follow_move(file: Path) -> None:
    """Write the addresses in the state directory's own database anew where it lies elsewhere than they say; say so.

    Any other database is left alone; so is this one while a run is at work, whose machine may have the directory
    under another path.
    """
    if file != location.own_database():
        return
    with closing(sqlite3.connect(file, timeout=20)) as connection:
        ours = connection.execute(_OURS, (location.EXPERIMENT, tags.EXPERIMENT))
        old = [address for (address,) in ours if _is_left(connection, address)]
        if not old or heard_of_lately():
            return
        with connection:
            changed = sum(_rewrite(connection, address) for address in old)
    sys.stderr.write(
        f"the state directory has moved from {local_folder(old[0]).parent} to {home()}: "  # type: ignore[union-attr]
        f"the artifacts of {counted(changed, 'run')} are found here from now on\n"
    )


def _is_left(connection: sqlite3.Connection, address: str) -> bool:
    """Tell whether an address is of a place that the state directory has left, or that it is a copy of."""
    folder, here = local_folder(address), location.artifacts()
    if folder is None or folder == here or folder.name != here.name:  # no address that `Store.experiment` gives
        return False
    if not folder.exists():
        return True
    if here.exists() and folder.samefile(here):  # by a symbolic link
        return False
    below = f"SELECT run_uuid FROM runs WHERE {_below('artifact_uri')}"  # nosec B608  # a column of `_ADDRESSES`
    runs = connection.execute(below, (address, address))
    return any((here / run_id).is_dir() for (run_id,) in runs)


def _rewrite(connection: sqlite3.Connection, old: str) -> int:
    """Change all addresses below one, and return those of how many runs."""
    new, changed = location.artifacts().as_uri(), {}
    for table, column in _ADDRESSES:
        changed[table] = connection.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {_below(column)}",  # nosec B608  # `_ADDRESSES`
            (new, len(old) + 1, old, old),
        ).rowcount
    return changed["runs"]


def _below(column: str) -> str:
    """Return the condition that an address, given twice, is that of a column or of a folder above it."""
    return f"substr({column} || '/', 1, length(?) + 1) = ? || '/'"
