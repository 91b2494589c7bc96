"""Reads back what was recorded: runs, their results, their curves.

Reads artifacts: from the folder where there is one, through the server where not.

Is the process of a run that says RUNNING still there?

What one line says of a run.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlparse

from mlflow import MlflowClient
from mlflow.entities import Run
from pydantic import ValidationError

from cse_cli.core import results as series
from cse_cli.core.environment import without_password
from cse_cli.core.paths import runs
from cse_cli.core.processes import lives
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.tracking import location
from cse_cli.tracking import location as names
from cse_cli.tracking import location as tag_names
from cse_cli.tracking.store import REFUSED, open_store
from registry.errors import CseError, UnknownNameError, suggestion

_PAGE = 1000


@dataclass(frozen=True)
class RecordedRun:
    """A run as the store has it.

    Args:
        status: MLflow's word, or "STALE" for a run that says RUNNING and whose process is gone.
        result: Of a finished run, where its `result.json` can be read.
        unreadable: Why it cannot.
    """

    run_id: str
    name: str
    status: str
    started: datetime
    ended: datetime | None
    tags: dict[str, str] = field(repr=False)
    result: Result | None = field(default=None, repr=False)
    unreadable: str | None = None


@dataclass(frozen=True)
class RunDetails:
    """All the store has of one run.

    Args:
        metrics: The value at the highest step of each.
        curves: Step and value of each metric that has more than one point, in order of step.
        artifacts: Paths below `artifact_folder`.
        artifact_folder: Folder on this machine, or the server's address.
    """

    run: RecordedRun
    params: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    artifacts: list[str]
    artifact_folder: str


def finished_results() -> list[Result]:
    """Return the results of all finished runs, newest first; says on stderr which could not be read.

    Trials of a search are left out: the best of many is no result until it is run again with fresh seeds.
    """
    found: list[Result] = []
    for run in list_runs("attributes.status = 'FINISHED'"):
        if tag_names.TUNE in run.tags:
            continue
        if run.result is not None:
            found.append(run.result)
        else:
            sys.stderr.write(f"warning: run {run.run_id[:8]} ({run.name}) is left out: {run.unreadable}\n")
    return found


def list_runs(matching: str = "", limit: int | None = None) -> list[RecordedRun]:
    """Return our runs, newest first, results included; nothing is created where there is no store yet.

    Args:
        matching: A filter in MLflow's search language.
        limit: Only the newest so many.

    Raises:
        TrackingError: The store does not answer.
    """
    if not location.exists(location.uri()):
        return []
    store = open_store()
    found = list(islice(_search(store.client, store.experiment, matching), limit))
    finished = [run for run in found if run.info.status == "FINISHED" and _has_result(run)]
    texts = read_texts(store.client, finished, RESULT)
    results = {run.info.run_id: _parsed(text) for run, text in zip(finished, texts, strict=True)}
    return [_recorded(run, results.get(run.info.run_id)) for run in found]


def find_run(prefix_or_name: str) -> str:
    """Return the id of the run whose id starts so, or that is called so.

    Raises:
        UnknownNameError: There is none, or several.
    """
    known = {run.run_id: run.name for run in list_names()}
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


def list_names() -> list[RecordedRun]:
    """Return our runs, newest first, without reading their results."""
    if not location.exists(location.uri()):
        return []
    store = open_store()
    return [_recorded(run, None) for run in _search(store.client, store.experiment, "")]


def details(run_id: str) -> RunDetails:
    """Return everything about a run; `run_id` as `find_run` returns it."""
    store = open_store()
    run = store.client.get_run(run_id)
    result = _parsed(read_texts(store.client, [run], RESULT)[0])
    histories = {key: store.client.get_metric_history(run_id, key) for key in sorted(run.data.metrics)}
    curves = {key: sorted((m.step, m.value) for m in points) for key, points in histories.items() if len(points) > 1}
    place = folder(run)
    return RunDetails(
        run=_recorded(run, result),
        params=dict(sorted(run.data.params.items())),
        metrics=dict(sorted(run.data.metrics.items())),
        curves=curves,
        artifacts=artifact_names(store.client, run),
        artifact_folder=run.info.artifact_uri if place is None else str(place),
    )


def series_of(run_id: str) -> dict[str, dict[str, Any]]:
    """Return evaluator → name → array of the numbers behind a run's scores; nothing where it kept none.

    They are read from the run's folder on this machine, else from the store.
    """
    kept = runs() / run_id / series.FOLDER
    if kept.is_dir():
        return series.read(kept)
    client = open_store().client
    with local_copy(client, client.get_run(run_id), series.FOLDER) as place:
        return series.read(place)


def text_of(run_id: str, name: str) -> str | None:
    """Return a text that a run recorded, from its folder on this machine or else from the store; None without one."""
    kept = runs() / run_id / name
    try:
        if kept.is_file():
            return kept.read_text(encoding="utf-8")
        client = open_store().client
        return read_text(client, client.get_run(run_id), name)
    except REFUSED:
        return None


def close_run(run_id: str, force: bool = False) -> RecordedRun:
    """Mark a run whose process is gone as KILLED.

    Raises:
        CseError: It is closed already, or seems alive and `force` is off.
    """
    client = open_store().client
    run = _recorded(client.get_run(run_id), None)
    if run.status not in ("RUNNING", "SCHEDULED", "STALE"):
        raise CseError(f"run {run_id[:8]} is closed already: {run.status}")
    if run.status != "STALE" and not force:
        process = f"process {run.tags.get(tag_names.PID, '?')} on {run.tags.get(tag_names.HOST, '?')}"
        raise CseError(f"run {run_id[:8]} seems alive: {process}", "end that process, or close it with --force")
    client.set_terminated(run_id, "KILLED")
    return _recorded(client.get_run(run_id), None)


def _search(client: MlflowClient, experiment: str, matching: str) -> Iterator[Run]:
    token: str | None = None
    while True:
        page = client.search_runs(
            [experiment], matching, max_results=_PAGE, order_by=["attributes.start_time DESC"], page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def _has_result(run: Run) -> bool:
    return not {tag_names.SUMMARY, tag_names.PRUNED} & set(run.data.tags)


def _parsed(text: str | Exception) -> Result | str:
    if isinstance(text, Exception):
        return f"{RESULT} cannot be read ({type(text).__name__})"
    try:
        return Result.model_validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{RESULT} is not a result of this version: {where or 'the text'}: {first['msg']}"


def _recorded(run: Run, result: Result | str | None) -> RecordedRun:
    tags = dict(run.data.tags)
    stale = run.info.status == "RUNNING" and is_stale(tags)
    return RecordedRun(
        run_id=run.info.run_id,
        name=run.info.run_name or "",
        status="STALE" if stale else run.info.status,
        started=_time(run.info.start_time) or datetime.fromtimestamp(0, UTC),
        ended=_time(run.info.end_time),
        tags=tags,
        result=result if isinstance(result, Result) else None,
        unreadable=result if isinstance(result, str) else None,
    )


def _time(milliseconds: int | None) -> datetime | None:
    return None if not milliseconds else datetime.fromtimestamp(milliseconds / 1000, UTC)


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


def artifact_names(client: MlflowClient, run: Run) -> list[str]:
    """Return the path of every artifact file below the run's artifact folder."""
    if (local := folder(run)) is not None:
        return sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file())
    found: list[str] = []
    waiting: list[str | None] = [None]
    while waiting:
        for entry in client.list_artifacts(run.info.run_id, waiting.pop()):
            (waiting if entry.is_dir else found).append(entry.path)
    return sorted(found)


SILENCE = timedelta(minutes=30)
"""A run on another machine that has said nothing for so long is taken for dead; one lives beats every minute."""


def is_stale(tags: Mapping[str, str], now: datetime | None = None) -> bool:
    """Return whether a run that says RUNNING has no process any more, as far as its tags tell."""
    if _is_ours(tags):
        return not lives(int(tags[names.PID]), tags.get(names.PROCESS_STARTED))
    if names.HEARTBEAT not in tags:
        return False
    return (now or datetime.now(UTC)) - datetime.fromisoformat(tags[names.HEARTBEAT]) > SILENCE


def is_alive_here(tags: Mapping[str, str]) -> bool:
    """Return whether the run's process is one of this machine, other than this one, and alive."""
    if not _is_ours(tags) or int(tags[names.PID]) == os.getpid():
        return False
    return lives(int(tags[names.PID]), tags.get(names.PROCESS_STARTED))


def _is_ours(tags: Mapping[str, str]) -> bool:
    return tags.get(names.HOST) == socket.gethostname() and names.PID in tags


@dataclass(frozen=True)
class Summary:
    """A run as `cse runs ls` shows it.

    Args:
        dev: The selecting metric at the selected state.
        test: Mean over the test evaluators that report the same metric, each rounded as papers print it.
        seconds: Training time of a finished run, else how long the record was open.
        note: What a reader of the numbers must know.
    """

    run_id: str
    recipe: str
    seed: str
    status: str
    dev: float | None
    test: float | None
    started: datetime
    seconds: float | None
    note: str


def summary(run: RecordedRun) -> Summary:
    """Return the line of a run."""
    result = run.result
    open_for = (run.ended - run.started).total_seconds() if run.ended else None
    return Summary(
        run_id=run.run_id,
        recipe=result.recipe if result else run.tags.get(names.RECIPE, run.name),
        seed=str(result.seed) if result else run.tags.get(names.SEED, ""),
        status=run.status,
        dev=_dev(result) if result else None,
        test=_test(result) if result else None,
        started=run.started,
        seconds=result.seconds if result else open_for,
        note=run.unreadable or ", ".join(_notes(run)),
    )


def _notes(run: RecordedRun) -> Iterator[str]:
    if names.TUNE in run.tags:
        yield f"trial {run.tags[names.TRIAL]}" if names.TRIAL in run.tags else f"search {run.tags[names.TUNE]}"
    if names.CONFIRMS in run.tags:
        yield f"confirms {run.tags[names.CONFIRMS]}"
    if names.PRUNED in run.tags:
        yield "pruned"
    if run.result is not None and run.result.test_selected:
        yield "chosen on test data"


def _dev(result: Result) -> float | None:
    return None if result.selected_step is None else result.curve.get(result.selected_step)


def _test(result: Result) -> float | None:
    selecting, _, metric = (result.select or ".spearman").rpartition(".")
    others = [name for name in result.scores if name != selecting and not name.endswith("dev")]
    wanted = list(STS_TASKS) if set(STS_TASKS) <= set(others) else others
    values = [round(result.scores[name][metric], 2) for name in wanted if metric in result.scores[name]]
    return fmean(values) if values else None
