"""Runs taken away, and what is left of such: `cse runs rm` and `cse runs gc`.

A removed run is as one deleted in MLflow's pages: in no list, and its record and artifacts are kept until they are
collected. What collects them deletes for good.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Run, ViewType
from mlflow.exceptions import MlflowException

from cse_cli.core import run_folder
from cse_cli.core.environment import without_password
from cse_cli.core.paths import runs
from cse_cli.core.run_status import is_at_work
from cse_cli.tracking import location
from cse_cli.tracking.files import local_folder, size_freed
from cse_cli.tracking.logged_model import models_of
from cse_cli.tracking.reader import RecordedRun, list_names, match_run
from cse_cli.tracking.repair import lost_runs
from cse_cli.tracking.signals import defer_signals
from cse_cli.tracking.store import Store, demand_not_lost, every_page, open_store
from cse_cli.tracking.tags import PARENT
from cse_cli.tracking.unsent import Unsent
from registry.errors import CseError, UnknownNameError

_UNKNOWN_FOR = timedelta(hours=1)
"""A folder without a recipe that is younger may be of a run that begins."""


def find_removable(names: Sequence[str]) -> list[RecordedRun]:
    """Return the runs whose ids start so, or that are called so, and the runs below them.

    Raises:
        UnknownNameError: One is no run, or may be several.
        CseError: One is at work.
    """
    known = list_names()
    asked = {match_run(name, known) for name in names}
    while below := {run.run_id for run in known if run.tags.get(PARENT) in asked} - asked:
        asked |= below
    found = [run for run in known if run.run_id in asked]
    for run in found:
        if run.status == "RUNNING" or is_at_work(run.run_id):
            raise CseError(
                f"run {run.run_id[:8]} ({run.name}) is at work",
                f"`cse runs stop {run.run_id[:8]}` ends it; `cse runs close --force` one that only seems to be",
            )
    return found


def remove(found: Sequence[RecordedRun]) -> int:
    """Delete runs from lists, and their folders for good; return the bytes that are free by that."""
    client = open_store().client
    folders = [folder for run in found if (folder := runs() / run.run_id).is_dir()]
    freed = size_freed(folders)
    for run in found:
        with defer_signals():
            for model in models_of(client, client.get_run(run.run_id)):
                client.delete_logged_model(model.model_id)
            client.delete_run(run.run_id)
            shutil.rmtree(runs() / run.run_id, ignore_errors=True)
    return freed


@dataclass(frozen=True)
class Garbage:
    """Something that nobody can use any more.

    Args:
        what: For a list.
        paths: Files and folders that go.
        forget: Deletes what the tracking store has of it.
    """

    what: str
    paths: tuple[Path, ...]
    forget: Callable[[], None] = field(default=lambda: None, repr=False)

    def collect(self) -> None:
        """Delete it for good."""
        with defer_signals():
            for path in self.paths:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            self.forget()


def find_garbage() -> tuple[list[Garbage], int]:
    """Return what can be deleted for good, and how many runs the store has lost.

    The former is removed runs, folders without a run, and checkpoints of finished runs. A folder is without a run where
    this tracking store should have its run and has not: one of another store is kept, and so is one from which `repair`
    records the run again.

    Raises:
        TrackingError: The state directory's database is gone, and folders of runs are there.
    """
    address = location.uri()
    if not location.exists(address):
        demand_not_lost(address)
        return list(_checkpoints()), 0
    store = open_store()
    unknown = list(_folders_without_run(store.client))
    is_own = location.database(address) == location.own_database()
    lost = {run_id for run_id, _ in lost_runs(store)} if unknown and is_own else set()
    orphans = [folder for folder in unknown if folder.name not in lost]
    garbage = (Garbage(f"folder without a run {folder.name[:8]}", (folder,)) for folder in orphans)
    return [*_removed_runs(store), *garbage, *_checkpoints()], len(unknown) - len(orphans)


def garbage_size(found: Iterable[Garbage]) -> int:
    """Return how many bytes are free once all of it is deleted."""
    return size_freed({path for one in found for path in one.paths})


def _removed_runs(store: Store) -> Iterator[Garbage]:
    experiments = list(store.experiments())
    if not experiments:
        return
    for run in every_page(
        lambda token: store.client.search_runs(experiments, "", ViewType.DELETED_ONLY, page_token=token)
    ):
        yield from _removed_run(store.client, run)


def _removed_run(client: MlflowClient, run: Run) -> Iterator[Garbage]:
    backend = client._tracking_client.store
    run_id, deletes = run.info.run_id, hasattr(backend, "_hard_delete_run")
    models = models_of(client, run)
    if deletes:  # those that the store calls deleted are in no search
        models += [backend.get_logged_model(one.model_id, allow_deleted=True) for one in _outputs(run, models)]
    kept = [run.info.artifact_uri, *(model.artifact_location for model in models)]
    folders = [folder.parent for uri in kept if (folder := local_folder(uri)) is not None]
    paths = tuple(folder for folder in (*folders, runs() / run_id) if folder.is_dir())

    def forget() -> None:
        for model in models:
            backend._hard_delete_logged_model(model.model_id)
        backend._hard_delete_run(run_id)

    if deletes or paths:  # a server deletes records only by `mlflow gc`, where it runs
        name = f"removed run {run_id[:8]} ({run.info.run_name})"
        yield Garbage(name, paths, forget) if deletes else Garbage(name, paths)


def _outputs(run: Run, known: Sequence[LoggedModel]) -> list[LoggedModel]:
    there = {model.model_id for model in known}
    made = run.outputs.model_outputs if run.outputs else []
    return [one for one in made if one.model_id not in there]


def _folders_without_run(client: MlflowClient) -> Iterator[Path]:
    address = location.uri()
    here = {without_password(address), without_password(location.kept(address))}
    for folder in sorted(path for path in runs().glob("*") if path.is_dir()):
        if is_at_work(folder.name) or Unsent(folder.name).exists() or not _belongs(folder, here):
            continue
        try:
            client.get_run(folder.name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            yield folder


def _belongs(folder: Path, names: Container[str]) -> bool:
    """Return whether a run's folder names its store so; one without a recipe belongs to every store."""
    try:
        return without_password(run_folder.find(folder.name).store) in names  # older ones hid less
    except UnknownNameError:
        age = datetime.now(UTC) - datetime.fromtimestamp(folder.stat().st_mtime, UTC)
        return age > _UNKNOWN_FOR
    except CseError:  # damaged: nobody knows whose it is
        return False


def _checkpoints() -> Iterator[Garbage]:
    for mark in sorted(runs().glob(f"*/{run_folder.FINISHED}")):
        left = (*mark.parent.glob("*.pt"), *mark.parent.glob("*.partial"))
        if left:
            yield Garbage(f"checkpoints of finished run {mark.parent.name[:8]}", left)
