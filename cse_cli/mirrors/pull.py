"""Copies the results of others from an MLflow server into records here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList

from cse_cli.core.environment import without_password
from cse_cli.core.paths import runs
from cse_cli.core.results import SERIES_FOLDER
from cse_cli.mirrors.fields import RUN
from cse_cli.mirrors.store import EXPERIMENT_TAG, open_store, reason
from cse_cli.runs.events import FILE
from cse_cli.runs.exchange import checked_record
from cse_cli.runs.record import ABOUT, ENVIRONMENT, RECIPE, RESULT, folder_of
from registry.errors import CseError, TrackingError
from registry.paths import make_folder, write_atomically

_PAGE = 1000
_ID = re.compile(r"[0-9a-f]{32}")


class _UnusableError(Exception):
    """The server lacks a part of the record, or the part is damaged."""


@dataclass(frozen=True)
class Pulled:
    """What was pulled.

    Args:
        new: Number of runs that were copied.
        known: Number of runs that existed before.
        unusable: Number of runs without a readable record.
    """

    new: int
    known: int
    unusable: int


def pull(address: str) -> Pulled:
    """Copy the finished runs of `cse` from an MLflow server. Runs that exist already stay unchanged.

    Raises:
        TrackingError: If the server does not respond.
    """
    client, counts = open_store(address).client, {"new": 0, "known": 0, "unusable": 0}
    origin = without_password(address)
    if "://" not in origin:
        origin = f"mlflow://{origin}"
    try:
        for run in _finished(client):
            counts[_pull_run(client, run, origin)] += 1
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"{origin} does not send its runs: {reason(error)}", "run this again: it continues with the other runs"
        ) from error
    return Pulled(**counts)


def _finished(client: MlflowClient) -> Iterator[Run]:
    """Yield the finished runs of all experiments that have runs of `cse`."""
    ours = f"tags.`{EXPERIMENT_TAG}` = 'true'"
    places = [
        str(one.experiment_id)
        for one in _pages(lambda token: client.search_experiments(filter_string=ours, page_token=token))
    ]
    if places:
        status = "attributes.status = 'FINISHED'"
        yield from _pages(lambda token: client.search_runs(places, status, max_results=_PAGE, page_token=token))


def _pages(search: Callable[[str | None], PagedList[Any]]) -> Iterator[Any]:
    page = search(None)
    yield from page
    while page.token:
        page = search(page.token)
        yield from page


def _pull_run(client: MlflowClient, run: Run, origin: str) -> str:
    run_id = run.data.tags.get(RUN, "")
    if not _ID.fullmatch(run_id):  # it becomes the name of a directory
        return "unusable"
    if folder_of(run_id).exists():
        return "known"
    draft = runs() / f".{run_id}.pulled"
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        _download(client, run.info.run_id, draft)
        _check(draft, run_id, f"{origin} {run.info.run_id}")
        draft.rename(folder_of(run_id))
    except _UnusableError:
        return "unusable"
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return "new"


def _download(client: MlflowClient, id_there: str, draft: Path) -> None:
    there = {artifact.path for artifact in client.list_artifacts(id_there)}
    if not {ABOUT, RESULT, FILE} <= there:
        raise _UnusableError
    for name in (ABOUT, RECIPE, RESULT, FILE, ENVIRONMENT, SERIES_FOLDER):
        if name in there:
            client.download_artifacts(id_there, name, str(draft))


def _check(draft: Path, run_id: str, origin: str) -> None:
    """Check a record that was downloaded, and mark it as pulled."""
    try:
        about = checked_record(draft, run_id)
    except CseError as error:
        raise _UnusableError from error
    write_atomically(draft / ABOUT, about.model_copy(update={"pulled": origin}).to_toml())
