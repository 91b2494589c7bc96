"""Reads artifacts: from the folder where there is one, through the server where not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlparse

from mlflow import MlflowClient
from mlflow.entities import Run

RESULT = "result.json"
_AT_ONCE = 8


def folder(run: Run) -> Path | None:
    """Return where the run's artifacts lie on this machine, or None where a server keeps them."""
    parts = urlparse(run.info.artifact_uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def read_text(client: MlflowClient, run: Run, name: str) -> str:
    """Return a text artifact.

    Raises:
        OSError: It is not there, or cannot be read.
        MlflowException: The server has none of that name.
    """
    if (local := folder(run)) is not None:
        return (local / name).read_text(encoding="utf-8")
    with TemporaryDirectory() as place:
        return Path(client.download_artifacts(run.info.run_id, name, place)).read_text(encoding="utf-8")


def read_texts(client: MlflowClient, runs: list[Run], name: str) -> list[str | Exception]:
    """Return the text of each run, or why it could not be read; several requests at a time."""

    def one(run: Run) -> str | Exception:
        try:
            return read_text(client, run, name)
        except Exception as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, runs))


@contextmanager
def local_copy(client: MlflowClient, run: Run, name: str) -> Iterator[Path]:
    """Yield where an artifact folder lies on this machine, fetched first where a server keeps it.

    There is no such folder where the run has no such artifact.
    """
    if (local := folder(run)) is not None:
        yield local / name
        return
    with TemporaryDirectory() as place:
        if client.list_artifacts(run.info.run_id, name):
            client.download_artifacts(run.info.run_id, name, place)
        yield Path(place) / name


def names(client: MlflowClient, run: Run) -> list[str]:
    """Return the path of every artifact file below the run's artifact folder."""
    if (local := folder(run)) is not None:
        return sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file())
    found: list[str] = []
    waiting: list[str | None] = [None]
    while waiting:
        for entry in client.list_artifacts(run.info.run_id, waiting.pop()):
            (waiting if entry.is_dir else found).append(entry.path)
    return sorted(found)
