"""MLflow as a mirror of the record, by its public interface."""

from __future__ import annotations

import getpass
import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from cse_cli.mirrors import location
from cse_cli.mirrors.files import hard_link, link_folder
from cse_cli.mirrors.logged_model import send_model
from cse_cli.mirrors.mirror import GoneError, Mirror, RefusedError, Target
from cse_cli.mirrors.store import Store, is_damaged, open_store, put_aside, put_aside_if_damaged, reason, settings
from cse_cli.runs.events import FILE, Event, read_events
from cse_cli.runs.record import ABOUT, RECIPE, About, read_recipe
from registry.errors import CseError

RUN_TAG = "cse.run_id"
"""Tag with the ID of the run's record."""
AVERAGE = "eval/avg"
"""Metric by which tables of runs are sorted."""

_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "lost": "KILLED"}
_REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")
"""Codes of MLflow for what it will refuse again. Other codes are for a server in trouble."""
_LONGEST_NAME, _LONGEST_PARAM, _LONGEST_TAG = 250, 6000, 8000
_LONGEST_DATASET, _LONGEST_DIGEST = 500, 36


class MlflowMirror(Mirror):
    """A run in MLflow: in a database or on a server."""

    name = "mlflow"
    _stores: ClassVar[dict[Target, Store]] = {}

    def __init__(self, about: About, target: Target) -> None:
        super().__init__(about, target)
        self._store = self._stores[target]
        self._client: MlflowClient = self._store.client
        self._id = ""
        self._infinite: set[str] = set()

    @classmethod
    def connect(cls) -> Target:
        """Open the store, and return where it is."""
        store = open_store()
        cls._stores[store.target] = store
        return store.target

    @classmethod
    def discard(cls) -> None:
        """Put the database in the state directory aside, if it is the one in use."""
        if location.is_own(location.uri()):
            put_aside("replaced")

    def open(self, run_id: str, parent: str) -> str:
        """Create the run in its experiment, or find it there."""
        first = next(read_events(self.about.path), None)
        self._began = int((self.about.created.timestamp() if first is None else first[0].time) * 1000)
        with self._translated():
            self._id = run_id or self._find() or self._create(parent)
            self._demand_active()
        if not self._store.is_remote:
            address = self._client.get_run(self._id).info.artifact_uri
            link_folder(location.local_folder(address), self._files)
        if not run_id:
            self._send_inputs()
        return self._id

    def send(self, events: Sequence[Event]) -> None:
        """Send events; all points of a batch in one request."""
        with self._translated():
            shown = (event for event in events if event.kind in _SEND)
            for send, group in groupby(shown, lambda event: _SEND[event.kind]):
                send(self, list(group))

    @property
    def _files(self) -> Path:
        """Directory of the run's record with the files that MLflow shows: hard links, so they need no space."""
        return self.about.path / "mirrors" / "mlflow" / "run"

    def _find(self) -> str | None:
        """Return the ID of the run if it was created and its ID was not recorded."""
        place = self._store.experiment(self.about.group)
        found = self._client.search_runs([place], f"tags.`{RUN_TAG}` = '{self.about.run_id}'", max_results=1)
        return str(found[0].info.run_id) if found else None

    def _create(self, parent: str) -> str:
        place = self._store.experiment(self.about.group)
        tags = about_tags(self.about) | ({"mlflow.parentRunId": parent} if parent else {})
        tags = {key: value[:_LONGEST_TAG] for key, value in tags.items()}
        return str(self._client.create_run(place, self._began, tags, self.about.name).info.run_id)

    def _send_inputs(self) -> None:
        with self._translated():
            try:
                values = params(read_recipe(self.about.run_id))
            except CseError:
                values = {}  # the record of a search has no recipe
            self._client.log_batch(self._id, params=[Param(legal_name(key), _cut(values[key])) for key in values])
            for name in (ABOUT, RECIPE):
                self._send_file(name)

    def _demand_active(self) -> None:
        """Raise GoneError if the run was deleted."""
        try:
            stage = self._client.get_run(self._id).info.lifecycle_stage
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            stage = LifecycleStage.DELETED
        if stage == LifecycleStage.DELETED:
            raise GoneError("it was deleted there")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of MLflow into those of mirrors."""
        try:
            yield
        except MlflowException as error:
            if error.error_code in _REFUSALS:
                if self._id:
                    self._demand_active()
                raise RefusedError(reason(error)) from error
            if is_damaged(error) and location.is_own(self._store.address):
                put_aside_if_damaged()
            raise OSError(reason(error)) from error

    # --- one method per kind of event ---

    def _start(self, events: list[Event]) -> None:
        self._client.update_run(self._id, status="RUNNING")
        last = events[-1].data
        self._tag({"cse.host": str(last.get("host", "")), "cse.device": str(last.get("device", ""))})

    def _metrics(self, events: list[Event]) -> None:
        points, tags = [], {}
        for event in events:
            time = int(event.time * 1000)
            step = int(event.data.get("step", (time - self._began) // 1000))
            for key, value in event.data["values"].items():
                name, number = legal_name(key), float(value)
                if not math.isinf(number):
                    points.append(Metric(name, number, time, step))
                elif name not in self._infinite:  # MLflow would show 1.8e308; the first step that went wrong is useful
                    self._infinite.add(name)
                    tags[f"cse.infinite.{name}"] = f"{number} at step {step}"
                if key == AVERAGE:
                    tags["avg"] = f"{number:.2f}"
        self._client.log_batch(self._id, metrics=points)
        self._tag(tags)

    def _tags(self, events: list[Event]) -> None:
        for event in events:
            self._tag(event.data["values"])

    def _tag(self, tags: Mapping[str, str]) -> None:
        self._client.log_batch(self._id, tags=[RunTag(key, value[:_LONGEST_TAG]) for key, value in tags.items()])

    def _datasets(self, events: list[Event]) -> None:
        for data in (event.data for event in events):
            name = data["name"][-_LONGEST_DATASET:]  # the end of a path says more
            read = Dataset(name, data["digest"][:_LONGEST_DIGEST], "local", json.dumps({"uri": data["source"]}))
            self._client.log_inputs(self._id, [DatasetInput(read, [InputTag("mlflow.data.context", data["context"])])])

    def _send_files(self, events: list[Event]) -> None:
        for event in events:
            self._send_file(event.data["name"])

    def _send_file(self, name: str) -> None:
        """Show a file or directory of the record as an artifact. One that no longer exists is left out."""
        source = self.about.path / name
        if not source.exists():
            return
        if not self._store.is_remote:
            hard_link(source, self._files / name)
            return
        with _patience():
            if source.is_dir():
                self._client.log_artifacts(self._id, str(source), name)
            else:
                self._client.log_artifact(self._id, str(source), posixpath.dirname(name) or None)

    def _models(self, events: list[Event]) -> None:
        for event in events:
            folder = self.about.path / event.data["name"]
            if folder.is_dir():
                files = None if self._store.is_remote else self._files.with_name("model")
                described = event.data["title"], event.data["about"]
                with _patience():
                    send_model(self._client, self._id, folder, described, files, list(_scores(self.about)))

    def _end(self, events: list[Event]) -> None:
        event = events[-1]
        tags = {"cse.state": event.kind.upper()}
        if event.data.get("reason"):
            tags["cse.reason"] = str(event.data["reason"])
        self._tag(tags)
        self._send_file(FILE)
        self._client.set_terminated(self._id, _STATUS[event.kind], int(event.time * 1000))


_SEND: dict[str, Callable[[MlflowMirror, list[Event]], None]] = {
    "started": MlflowMirror._start,
    "metrics": MlflowMirror._metrics,
    "system": MlflowMirror._metrics,
    "tags": MlflowMirror._tags,
    "dataset": MlflowMirror._datasets,
    "file": MlflowMirror._send_files,
    "model": MlflowMirror._models,
    **dict.fromkeys(_STATUS, MlflowMirror._end),
}


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run: what a person reads first, then what identifies it."""
    seed = "" if about.seed is None else str(about.seed)
    tags = {
        "recipe": about.recipe,
        "method": about.method,
        "encoder": about.encoder,
        "data": about.data,
        "seed": seed,
        RUN_TAG: about.run_id,
        "cse.experiment": about.experiment,
        "cse.set": "; ".join(about.changes),
        "cse.study": about.study,
        "cse.search": about.search,
        "cse.trial": "" if about.trial is None else str(about.trial),
        "cse.confirms": about.confirms,
        "cse.summary": about.summary,
        "cse.paper": about.paper,
        "cse.test_selected": "true" if about.test_selected else "",
        "mlflow.note.content": about.note,
        "mlflow.source.name": "cse",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": about.git,
        "mlflow.user": _user(),
    }
    return {key: value for key, value in tags.items() if value} | about.tags


def params(resolved: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return every leaf of a resolved recipe by its dotted key, without prose and the search space."""
    found: dict[str, str] = {}
    for key, value in resolved.items():
        if isinstance(value, Mapping):
            found |= params(value, f"{prefix}{key}.") if prefix or key != "tune" else {}
        elif prefix or key != "description":
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return found


def legal_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a metric or param: `p@5` → `p_at_5`, `loss[0]` → `loss.0`."""
    name = re.sub(r"\[([^\]]*)\]", r".\1", name.replace("@", "_at_"))
    name = re.sub(r"[^\w\-. :/]", "_", name)
    name = posixpath.normpath("/" + name).strip("/")
    return name[:_LONGEST_NAME].rstrip("/.") or "_"


def _patience() -> AbstractContextManager[None]:
    """Give a server more time: it may work for a while on a large file."""
    return settings(MLFLOW_HTTP_REQUEST_TIMEOUT="120", MLFLOW_HTTP_REQUEST_MAX_RETRIES="1")


def _scores(about: About) -> Iterator[Metric]:
    """Yield the final scores of a run, equal to the points that were sent."""
    for event, _ in read_events(about.path):
        if event.kind == "metrics":
            for key, value in event.data["values"].items():
                if key.startswith("eval/") and math.isfinite(float(value)):
                    yield Metric(legal_name(key), float(value), int(event.time * 1000), int(event.data["step"]))


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_PARAM else value[: _LONGEST_PARAM - 1] + "…"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # the user ID of a container without a name
