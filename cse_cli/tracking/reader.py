"""Reads back what was recorded: runs, their results, curves and artifacts; and which RUNNING runs are gone."""

from __future__ import annotations

import os
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from pydantic import ValidationError

from cse_cli.core import results
from cse_cli.core.environment import without_password
from cse_cli.core.paths import runs
from cse_cli.core.processes import is_alive
from cse_cli.core.results import Result
from cse_cli.core.run_lock import is_held
from cse_cli.tracking import location
from cse_cli.tracking.files import local_folder
from cse_cli.tracking.signals import defer_signals
from cse_cli.tracking.store import REFUSED, Store, demand_not_lost, every_page, open_store
from cse_cli.tracking.tags import HEARTBEAT, HOST, PID, PROCESS_STARTED, PRUNED, SUMMARY, TUNE
from registry.errors import CseError, UnknownNameError, suggestion
from registry.validation import describe

RESULT = "result.json"
SILENCE = timedelta(minutes=30)
"""A run on another machine that has said nothing for so long is taken for dead; one lives beats every minute."""
_PAGE = 1000
_UNKNOWN = datetime.fromtimestamp(0, UTC)
_DOWNLOADS_AT_ONCE = 8


@dataclass(frozen=True)
class RecordedRun:
    """A run as the store has it.

    Args:
        status: MLflow's word, or "GONE" for a run that says RUNNING and whose process is gone.
        experiment: Name of the experiment that it is in; empty where only the run was asked for.
        artifact_uri: Where its artifacts are, as the store says.
        result: Of a finished run, where its `result.json` can be read.
        unreadable: Why it cannot.
    """

    run_id: str
    name: str
    status: str
    started: datetime
    ended: datetime | None
    tags: dict[str, str] = field(repr=False)
    artifact_uri: str = field(default="", repr=False)
    result: Result | None = field(default=None, repr=False)
    unreadable: str | None = None
    experiment: str = ""


@dataclass(frozen=True)
class RunDetails:
    """All the store has of one run.

    Args:
        metrics: The value at the highest step of each.
        curves: Step and value of each metric that has more than one point, in order of step.
        artifacts: Paths below `artifact_folder`.
        artifact_folder: Folder on this machine, or the server's address.
        models: Of each model that it has logged, how MLflow's loaders call it.
    """

    run: RecordedRun
    params: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    artifacts: list[str]
    artifact_folder: str
    models: list[str]


def finished_runs() -> list[RecordedRun]:
    """Return all finished runs with their results, newest first; says on stderr which could not be read.

    Trials of a search are left out: the best of many is no result until it is run again with fresh seeds.
    """
    found: list[RecordedRun] = []
    for run in list_runs(wanted=lambda run: run.status == "FINISHED" and TUNE not in run.tags):
        if run.result is not None:
            found.append(run)
        else:
            sys.stderr.write(f"warning: run {run.run_id[:8]} ({run.name}) is left out: {run.unreadable}\n")
    return found


def finished_results() -> list[Result]:
    """Return the results of `finished_runs`."""
    return [run.result for run in finished_runs() if run.result is not None]


def list_runs(
    matching: str = "", limit: int | None = None, wanted: Callable[[RecordedRun], bool] = lambda _: True
) -> list[RecordedRun]:
    """Return our runs, newest first, results included; nothing is created where there is no store yet.

    Args:
        matching: A filter in MLflow's search language.
        limit: Only the newest so many.
        wanted: Which of them; asked before results are read.

    Raises:
        TrackingError: The store does not answer.
    """
    if not location.exists(location.uri()):
        demand_not_lost(location.uri())
        return []
    store = open_store()
    found = list(islice(filter(wanted, _search(store, matching)), limit))
    finished = [run for run in found if run.status == "FINISHED" and not {SUMMARY, PRUNED} & set(run.tags)]
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        at_once = pool.map if location.is_remote(store.uri) else map  # files are read by one thread as fast
        read = dict(
            zip((run.run_id for run in finished), at_once(partial(_result, store.client), finished), strict=True)
        )
    return [_with_result(run, read.get(run.run_id)) for run in found]


def list_names() -> list[RecordedRun]:
    """Return our runs, newest first, without reading their results."""
    if not location.exists(location.uri()):
        demand_not_lost(location.uri())
        return []
    return list(_search(open_store()))


def newest_experiment() -> tuple[str, dict[str, str]] | None:
    """Return the id and the tags of the experiment that the newest run is in; None without a run."""
    store = open_store()
    for run in _search(store):
        found = store.client.get_experiment_by_name(run.experiment)
        return None if found is None else (str(found.experiment_id), dict(found.tags))
    return None


def find_run(prefix_or_name: str) -> str:
    """Return the id of the run whose id starts so, or that is called so.

    Raises:
        UnknownNameError: There is none, or several.
    """
    return match_run(prefix_or_name, list_names())


def match_run(prefix_or_name: str, runs: Iterable[RecordedRun]) -> str:
    """Return the same, of runs that are read already.

    Raises:
        UnknownNameError: There is none, or several.
    """
    known = {run.run_id: run.name for run in runs}
    by_id = [run_id for run_id in known if run_id.startswith(prefix_or_name.lower())]
    by_name = [run_id for run_id, name in known.items() if name == prefix_or_name]
    matching = by_id or by_name
    if prefix_or_name and len(matching) == 1:
        return matching[0]
    if prefix_or_name and matching:
        listed = ", ".join(f"{run_id[:8]} ({known[run_id]})" for run_id in matching[:5])
        raise UnknownNameError(
            f"{prefix_or_name!r} may be {len(matching)} runs: {listed}", "give more characters of the id"
        )
    near = suggestion(prefix_or_name, [*known.values(), *(run_id[:8] for run_id in known)])
    raise UnknownNameError(
        f"no run {prefix_or_name!r} in {without_password(location.uri())}.{near}", "'cse runs ls' shows the runs"
    )


def details(run_id: str) -> RunDetails:
    """Return everything about a run; `run_id` as `find_run` returns it."""
    client = open_store().client
    run = client.get_run(run_id)
    histories = {key: client.get_metric_history(run_id, key) for key in sorted(run.data.metrics)}
    recorded = _recorded(run)
    folder = _artifacts(recorded)
    return RunDetails(
        run=_with_result(recorded, _result(client, recorded)),
        params=dict(sorted(run.data.params.items())),
        metrics=dict(sorted(run.data.metrics.items())),
        curves={key: sorted((m.step, m.value) for m in points) for key, points in histories.items() if len(points) > 1},
        artifacts=_artifact_names(client, recorded),
        artifact_folder=recorded.artifact_uri if folder is None else str(folder),
        models=[f"models:/{one.model_id}" for one in (run.outputs.model_outputs if run.outputs else [])],
    )


def series_of(run_id: str) -> dict[str, dict[str, Any]]:
    """Return evaluator → name → array of the numbers behind a run's scores; nothing where it kept none.

    They are read from the run's folder on this machine, else from the store.
    """
    kept = runs() / run_id / results.SERIES_FOLDER
    if kept.is_dir():
        return results.read_series(kept)
    client = open_store().client
    with _local_copy(client, _recorded(client.get_run(run_id)), results.SERIES_FOLDER) as folder:
        return results.read_series(folder)


def text_of(run_id: str, name: str) -> str | None:
    """Return a text that a run recorded, from its folder on this machine or else from the store; None without one.

    One that is no text any more is none.
    """
    kept = runs() / run_id / name
    try:
        if kept.is_file():
            return kept.read_text(encoding="utf-8")
        client = open_store().client
        return _read_text(client, _recorded(client.get_run(run_id)), name)
    except (*REFUSED, UnicodeDecodeError):
        return None


def result_of(run_id: str) -> Result | None:
    """Return the result that a run has recorded; None without one.

    Raises:
        CseError: It is damaged, or of another version.
    """
    text = text_of(run_id, RESULT)
    try:
        return None if text is None else Result.model_validate_json(text)
    except ValidationError as error:
        raise CseError(f"{RESULT} of run {run_id[:8]}: {describe(error)}", "run it again") from error


def close_run(run_id: str, force: bool = False) -> RecordedRun:
    """Mark a run whose process is gone as KILLED.

    Raises:
        CseError: It is closed already, or seems alive and `force` is off.
    """
    client = open_store().client
    run = _recorded(client.get_run(run_id))
    if run.status not in ("RUNNING", "SCHEDULED", "GONE"):
        raise CseError(f"run {run_id[:8]} is closed already: {run.status}")
    if run.status != "GONE" and not force:
        process = f"process {run.tags.get(PID, '?')} on {run.tags.get(HOST, '?')}"
        raise CseError(f"run {run_id[:8]} seems alive: {process}", "end that process, or close it with --force")
    with defer_signals():
        client.set_terminated(run_id, "KILLED")
    return _recorded(client.get_run(run_id))


def is_gone(run_id: str, tags: Mapping[str, str], now: datetime | None = None) -> bool:
    """Return whether a run that says RUNNING has no process any more, as far as its lock and its tags tell."""
    held = is_held(run_id)
    if held:
        return False
    if _is_on_this_machine(tags):
        return held is False or not is_alive(int(tags[PID]), tags.get(PROCESS_STARTED))
    if HEARTBEAT not in tags:
        return False
    return (now or datetime.now(UTC)) - datetime.fromisoformat(tags[HEARTBEAT]) > SILENCE


def is_elsewhere(run: Run) -> bool:
    """Return whether another process is at a run: by its lock, else by the process of this machine in its tags."""
    held, tags = is_held(run.info.run_id), run.data.tags
    if held is not None:
        return held
    if run.info.status != "RUNNING" or not _is_on_this_machine(tags) or int(tags[PID]) == os.getpid():
        return False
    return is_alive(int(tags[PID]), tags.get(PROCESS_STARTED))


def _is_on_this_machine(tags: Mapping[str, str]) -> bool:
    return tags.get(HOST) == socket.gethostname() and PID in tags


def _search(store: Store, matching: str = "") -> Iterator[RecordedRun]:
    """Yield our runs in all experiments, newest first."""
    if not (names := store.experiments()):
        return
    if not matching and not location.is_remote(store.uri):
        yield from _rows(store, names)
        return
    order = ["attributes.start_time DESC"]
    for run in every_page(
        lambda token: store.client.search_runs(
            list(names), matching, max_results=_PAGE, order_by=order, page_token=token
        )
    ):
        yield _recorded(run, names[str(run.info.experiment_id)])


def _rows(store: Store, experiments: Mapping[str, str]) -> Iterator[RecordedRun]:
    """Yield the runs of a database with their tags, newest first.

    MLflow's search also makes an object of every parameter and metric: 15 s of a processor for 3,000 runs, and not 0.2.
    """
    from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
    from sqlalchemy import select

    ours = SqlRun.lifecycle_stage == "active", SqlRun.experiment_id.in_([int(one) for one in experiments])
    columns = SqlRun.run_uuid, SqlRun.name, SqlRun.status, SqlRun.start_time, SqlRun.end_time, SqlRun.artifact_uri
    with store.client._tracking_client.store.ManagedSessionMaker(read_only=True) as session:
        runs = session.execute(
            select(*columns, SqlRun.experiment_id).where(*ours).order_by(SqlRun.start_time.desc(), SqlRun.run_uuid)
        ).all()
        of_tags = select(SqlTag.run_uuid, SqlTag.key, SqlTag.value).join(SqlRun).where(*ours)
        tags: dict[str, dict[str, str]] = defaultdict(dict)
        for run_id, key, value in session.execute(of_tags):
            tags[run_id][key] = value
    for run_id, name, status, started, ended, artifacts, experiment in runs:
        about = tags[run_id]
        yield RecordedRun(
            run_id=run_id,
            name=name or "",
            status=_status(run_id, status, about),
            started=_time(started) or _UNKNOWN,
            ended=_time(ended),
            tags=about,
            artifact_uri=artifacts,
            experiment=experiments[str(experiment)],
        )


def _recorded(run: Run, experiment: str = "") -> RecordedRun:
    info, tags = run.info, dict(run.data.tags)
    return RecordedRun(
        run_id=info.run_id,
        name=info.run_name or "",
        status=_status(info.run_id, info.status, tags),
        started=_time(info.start_time) or _UNKNOWN,
        ended=_time(info.end_time),
        tags=tags,
        artifact_uri=info.artifact_uri,
        experiment=experiment,
    )


def _status(run_id: str, status: str, tags: Mapping[str, str]) -> str:
    return "GONE" if status == "RUNNING" and is_gone(run_id, tags) else status


def _with_result(run: RecordedRun, result: Result | str | None) -> RecordedRun:
    """Return a run with its result, or with why that cannot be read."""
    return replace(run, unreadable=result) if isinstance(result, str) else replace(run, result=result)


def _time(milliseconds: int | None) -> datetime | None:
    return None if not milliseconds else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _result(client: MlflowClient, run: RecordedRun) -> Result | str:
    """Return the run's result, or why it cannot be read."""
    try:
        return Result.model_validate_json(_read_text(client, run, RESULT))
    except ValidationError as error:
        return f"{RESULT} is not a result of this version: {describe(error)}"
    except Exception as error:
        return f"{RESULT} cannot be read ({type(error).__name__})"


def _artifacts(run: RecordedRun) -> Path | None:
    """Return the folder on this machine that has a run's artifacts, or None where a server keeps them.

    What the database says is no longer true where the state directory has moved and cannot be written, as an archive.
    """
    folder = local_folder(run.artifact_uri)
    if folder is None or folder.exists() or location.database(location.uri()) != location.own_database():
        return folder
    here = location.artifacts() / run.run_id / folder.name
    return here if here.exists() else folder


def _read_text(client: MlflowClient, run: RecordedRun, name: str) -> str:
    if (local := _artifacts(run)) is not None:
        return (local / name).read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run.run_id, name, folder)).read_text(encoding="utf-8")


@contextmanager
def _local_copy(client: MlflowClient, run: RecordedRun, name: str) -> Iterator[Path]:
    """Yield where an artifact folder lies on this machine, fetched first where a server keeps it.

    There is no such folder where the run has no such artifact.
    """
    if (local := _artifacts(run)) is not None:
        yield local / name
        return
    with TemporaryDirectory() as folder:
        if client.list_artifacts(run.run_id, name):
            client.download_artifacts(run.run_id, name, folder)
        yield Path(folder) / name


def _artifact_names(client: MlflowClient, run: RecordedRun) -> list[str]:
    """Return the path of every artifact file below the run's artifact folder."""
    if (local := _artifacts(run)) is not None:
        return sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file())
    found: list[str] = []
    folders: list[str | None] = [None]
    while folders:
        for entry in client.list_artifacts(run.run_id, folders.pop()):
            (folders if entry.is_dir else found).append(entry.path)
    return sorted(found)
