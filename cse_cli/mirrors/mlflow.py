"""MLflow as a mirror of the record, by its public interface."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from cse_cli.mirrors import location
from cse_cli.mirrors.fields import RUN, about_tags, params
from cse_cli.mirrors.files import hard_link, link_folder
from cse_cli.mirrors.logged_model import SavedModel
from cse_cli.mirrors.mirror import GoneError, Mirror, RefusedError, Target
from cse_cli.mirrors.store import Store, is_damaged, open_store, put_aside, put_aside_if_damaged, reason, settings
from cse_cli.runs.events import FILE, Event, read_events
from cse_cli.runs.record import ABOUT, RECIPE, About, read_recipe
from registry.errors import CseError

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
        self._id = self._place = ""
        self._began = 0
        self._new = False
        self._infinite: set[str] = set()

    @classmethod
    def connect(cls) -> Target:
        """Open the store, and return where it is."""
        store = open_store()
        cls._stores.setdefault(store.target, store)
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
            run = self._active(run_id) if run_id else self._find()
            self._new = run is None
            run = run or self._create(parent)
            self._id, self._place = run.info.run_id, run.info.experiment_id
            if not self._store.is_remote:
                link_folder(location.local_folder(run.info.artifact_uri), self._files)
            if not run_id:
                self._send_inputs()
        return self._id

    def send(self, events: Sequence[Event]) -> None:
        """Send events: all points and tags in one request, then what else there is, and the status last."""
        points, tags = self._points(events), self._tags(events)
        with self._translated():
            if points or tags:
                pairs = [RunTag(key, value[:_LONGEST_TAG]) for key, value in tags.items()]
                self._client.log_batch(self._id, metrics=points, tags=pairs)
            for event in events:
                if event.kind in _SEND:
                    _SEND[event.kind](self, event.data)
            self._send_status([event for event in events if event.kind in ("started", *_STATUS)])

    @property
    def _files(self) -> Path:
        """Directory of the run's record with the files that MLflow shows: hard links, so they need no space."""
        return self.about.path / "mirrors" / "mlflow" / "run"

    def _find(self) -> Run | None:
        """Return the run if it was created and its ID was not recorded."""
        place = self._store.experiment(self.about.group)
        found = self._client.search_runs([place], f"tags.`{RUN}` = '{self.about.run_id}'", max_results=1)
        return next(iter(found), None)

    def _create(self, parent: str) -> Run:
        place = self._store.experiment(self.about.group)
        tags = about_tags(self.about) | ({"mlflow.parentRunId": parent} if parent else {})
        tags = {key: value[:_LONGEST_TAG] for key, value in tags.items()}
        try:
            return self._client.create_run(place, self._began, tags, self.about.name)
        except MlflowException:
            self._store.experiments.clear()  # the experiment may have been deleted: then this raises GoneError
            self._store.experiment(self.about.group)
            raise

    def _active(self, run_id: str) -> Run:
        """Return a run, or raise GoneError if it was deleted."""
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage == LifecycleStage.DELETED:
            raise GoneError("it was deleted there")
        return run

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of MLflow into those of mirrors."""
        try:
            yield
        except MlflowException as error:
            if error.error_code in _REFUSALS:
                if self._id:
                    self._active(self._id)
                raise RefusedError(reason(error)) from error
            if is_damaged(error) and location.is_own(self._store.address):
                put_aside_if_damaged()
            raise OSError(reason(error)) from error

    def _send_inputs(self) -> None:
        try:
            values = params(read_recipe(self.about.run_id))
        except CseError:
            values = {}  # the record of a search has no recipe
        self._client.log_batch(self._id, params=[Param(legal_name(key), _cut(values[key])) for key in values])
        for name in (ABOUT, RECIPE):
            self._send_file({"name": name})

    def _points(self, events: Sequence[Event]) -> list[Metric]:
        return [
            Metric(legal_name(key), float(value), int(event.time * 1000), self._step(event))
            for event in events
            if event.kind in ("metrics", "system")
            for key, value in event.data["values"].items()
            if not math.isinf(float(value))
        ]

    def _step(self, event: Event) -> int:
        """Return the step of an event: of system metrics, the seconds since the start."""
        return int(event.data.get("step", event.time - self._began / 1000))

    def _tags(self, events: Sequence[Event]) -> dict[str, str]:
        tags: dict[str, str] = {}
        for event in events:
            if event.kind == "tags":
                tags |= event.data["values"]
            elif event.kind == "started":
                tags |= {f"cse.{name}": str(event.data[name]) for name in ("host", "device") if event.data.get(name)}
            elif event.kind == "metrics":
                tags |= dict(self._tags_of_metrics(event))
            elif event.kind in _STATUS:
                tags["cse.state"] = event.kind.upper()
                if event.data.get("reason"):
                    tags["cse.reason"] = str(event.data["reason"])
        return tags

    def _tags_of_metrics(self, event: Event) -> Iterator[tuple[str, str]]:
        for key, value in event.data["values"].items():
            name, number = legal_name(key), float(value)
            if key == AVERAGE:
                yield "avg", f"{number:.2f}"
            if math.isinf(number) and name not in self._infinite:
                # MLflow would show 1.8e308. The first step that went wrong is useful.
                self._infinite.add(name)
                yield f"cse.infinite.{name}", f"{number} at step {self._step(event)}"

    def _send_status(self, events: list[Event]) -> None:
        if not events:
            return
        last = events[-1]
        if last.kind in _STATUS:
            self._send_file({"name": FILE})
            self._client.set_terminated(self._id, _STATUS[last.kind], int(last.time * 1000))
        elif not self._new or len(events) > 1:  # a new run is RUNNING
            self._client.update_run(self._id, status="RUNNING")

    def _send_dataset(self, data: Mapping[str, str]) -> None:
        name = data["name"][-_LONGEST_DATASET:]  # the end of a path says more
        read = Dataset(name, data["digest"][:_LONGEST_DIGEST], "local", json.dumps({"uri": data["source"]}))
        self._client.log_inputs(self._id, [DatasetInput(read, [InputTag("mlflow.data.context", data["context"])])])

    def _send_file(self, data: Mapping[str, str]) -> None:
        """Show a file or directory of the record as an artifact. One that no longer exists is left out."""
        name, source = data["name"], self.about.path / data["name"]
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

    def _send_model(self, data: Mapping[str, Any]) -> None:
        saved = SavedModel(self.about.path / data["name"], data["title"], data["about"])
        if saved.folder.is_dir():
            with _patience():
                files = None if self._store.is_remote else self._files.with_name("model")
                saved.send(self._client, (self._id, self._place), files, list(_scores(self.about)))


_SEND: dict[str, Callable[[MlflowMirror, Mapping[str, Any]], None]] = {
    "dataset": MlflowMirror._send_dataset,
    "file": MlflowMirror._send_file,
    "model": MlflowMirror._send_model,
}


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
