"""Import finished runs of other users from an MLflow server."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList

from cse_cli.core.paths import runs
from cse_cli.core.results import SERIES_FOLDER
from cse_cli.mirrors.mirror import RUN
from cse_cli.mirrors.store import EXPERIMENT_TAG, open_store, reason
from cse_cli.runs.events import FILE
from cse_cli.runs.exchange import adopt
from cse_cli.runs.record import ABOUT, ENVIRONMENT, RECIPE, RESULT, folder_of
from registry.errors import CseError, TrackingError
from registry.paths import make_folder

_PAGE = 1000
_ID = re.compile(r"[0-9a-f]{32}")


def pull(address: str) -> Counter[str]:
    """Copy the finished runs of `cse` from an MLflow server. Existing runs stay unchanged.

    The numbers that it returns are those of "new" runs, of runs that are already "known", and of "unusable" ones
    without a readable record.
    """
    store, counts = open_store(address), Counter[str]()
    uri = store.target.uri
    origin = uri if "://" in uri else f"mlflow://{uri}"
    try:
        for run in _finished(store.client):
            counts[_pull_run(store.client, run, origin)] += 1
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"cannot download runs from {origin}: {reason(error)}",
            "run this again to continue with the other runs",
            code="mirrors.pull_failed",
        ) from error
    return counts


def _finished(client: MlflowClient) -> Iterator[Run]:
    """Yield the finished runs of all experiments that contain runs of `cse`."""
    tagged = f"tags.`{EXPERIMENT_TAG}` = 'true'"
    found = _pages(lambda token: client.search_experiments(filter_string=tagged, page_token=token))
    if ids := [str(one.experiment_id) for one in found]:
        status = "attributes.status = 'FINISHED'"
        yield from _pages(lambda token: client.search_runs(ids, status, max_results=_PAGE, page_token=token))


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
        existing = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
        for name in (ABOUT, RECIPE, RESULT, FILE, ENVIRONMENT, SERIES_FOLDER):
            if name in existing:
                client.download_artifacts(run.info.run_id, name, str(draft))
        adopt(draft, run_id, f"{origin} {run.info.run_id}")
    except CseError:
        return "unusable"
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return "new"
