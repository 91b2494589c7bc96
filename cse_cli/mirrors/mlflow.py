"""MLflow as a mirror of records, through its public interface.

The artifacts on this machine are links to the files of a run, which need no disk space. Its model is a logged model,
which the Models tab shows with its scores, files and run. MLflow's loaders expect its files in
`model.sentence_transformer`. `mlflow.sentence_transformers.log_model` would load the model and save it again, which
takes 1.1 s and needs a second copy.
"""

from __future__ import annotations

import json
import math
import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LifecycleStage,
    LoggedModel,
    LoggedModelOutput,
    Metric,
    Param,
    Run,
    RunTag,
)
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from cse_cli.mirrors import location
from cse_cli.mirrors.location import local_folder
from cse_cli.mirrors.mirror import RUN, GoneError, Mirror, RefusedError, Target, about_tags
from cse_cli.mirrors.store import Store, open_store, put_aside, put_aside_if_damaged, reason
from cse_cli.runs.details import settings_of
from cse_cli.runs.events import FILE, Event, read_events
from cse_cli.runs.record import ABOUT, RECIPE, About
from registry.paths import make_folder

AVERAGE = "eval/avg"
"""Metric that sorts tables of runs."""

_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "lost": "KILLED"}
_REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "ENDPOINT_NOT_FOUND")
"""Error codes of requests that MLflow will always reject. Other codes can be temporary."""
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
        self._id = self._experiment = ""
        self._began = 0

    @classmethod
    def connect(cls) -> Target:
        """Open the store, and return its target."""
        store = open_store()
        cls._stores.setdefault(store.target, store)
        return store.target

    @classmethod
    def discard(cls) -> None:
        """Rename the database in the state directory, if it is the current one."""
        if location.is_own(location.uri()):
            put_aside("")

    def open(self, run_id: str, parent: str) -> str:
        """Create the run in its experiment, or open it if it exists."""
        first = next(read_events(self.about.path), None)
        self._began = int((self.about.created.timestamp() if first is None else first[0].time) * 1000)
        with self._translated():
            run = self._active(run_id) if run_id else self._find_or_create(parent)
            self._id, self._experiment = run.info.run_id, run.info.experiment_id
            if not self._store.is_remote:
                link_folder(location.local_folder(run.info.artifact_uri), self._files)
            if not run_id:
                values = settings_of(self.about.run_id)
                self._client.log_batch(self._id, params=[Param(legal_name(key), _cut(values[key])) for key in values])
                for name in (ABOUT, RECIPE):
                    self._send_file(name)
        return self._id

    def send(self, events: Sequence[Event]) -> None:
        """Send all points and tags in one request, then other events, and the status last."""
        points, tags = self._points(events), self._tags(events)
        with self._translated():
            if points or tags:
                pairs = [RunTag(key, value[:_LONGEST_TAG]) for key, value in tags.items()]
                self._client.log_batch(self._id, metrics=points, tags=pairs)
            for event in events:
                match event.kind:
                    case "dataset":
                        self._send_dataset(event.data)
                    case "file":
                        self._send_file(event.data["name"])
                    case "model":
                        self._send_model(event.data)
            self._send_status([event for event in events if event.kind in ("started", *_STATUS)])

    @property
    def _files(self) -> Path:
        """Directory of hard links to the files that MLflow shows."""
        return self.about.path / "mirrors" / "mlflow" / "run"

    def _find_or_create(self, parent: str) -> Run:
        """Return the run. It exists already if its ID could not be recorded."""
        place = self._store.experiment(self.about.group)
        found = self._client.search_runs([place], f"tags.`{RUN}` = '{self.about.run_id}'", max_results=1)
        if found:
            return found[0]
        tags = about_tags(self.about) | ({"mlflow.parentRunId": parent} if parent else {})
        tags = {key: value[:_LONGEST_TAG] for key, value in tags.items()}
        return self._client.create_run(place, self._began, tags, self.about.name)

    def _active(self, run_id: str) -> Run:
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage == LifecycleStage.DELETED:
            raise GoneError("it was deleted in MLflow")
        return run

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MlflowException as error:
            if error.error_code in _REFUSALS:
                if self._id:
                    self._active(self._id)
                raise RefusedError(reason(error)) from error
            if self.target.complete and "locked" not in str(error):
                put_aside_if_damaged()
            raise OSError(reason(error)) from error

    def _points(self, events: Sequence[Event]) -> list[Metric]:
        return [
            Metric(legal_name(key), float(value), int(event.time * 1000), self._step(event))
            for event in events
            if event.kind in ("metrics", "system")
            for key, value in event.data["values"].items()
            if not math.isinf(float(value))  # MLflow would show 1.8e308
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
            elif event.kind == "metrics" and AVERAGE in event.data["values"]:
                tags["avg"] = f"{event.data['values'][AVERAGE]:.2f}"
            elif event.kind in _STATUS:
                tags["cse.state"] = event.kind.upper()
                if event.data.get("reason"):
                    tags["cse.reason"] = str(event.data["reason"])
        return tags

    def _send_status(self, events: list[Event]) -> None:
        if not events:
            return
        last = events[-1]
        if last.kind in _STATUS:
            self._send_file(FILE)
            self._client.set_terminated(self._id, _STATUS[last.kind], int(last.time * 1000))
        else:
            self._client.update_run(self._id, status="RUNNING")

    def _send_dataset(self, data: Mapping[str, str]) -> None:
        name = data["name"][-_LONGEST_DATASET:]  # the end of a path identifies it better
        read = Dataset(name, data["digest"][:_LONGEST_DIGEST], "local", json.dumps({"uri": data["source"]}))
        self._client.log_inputs(self._id, [DatasetInput(read, [InputTag("mlflow.data.context", data["context"])])])

    def _send_file(self, name: str) -> None:
        """Show a file or directory of the record as an artifact, if it still exists."""
        source = self.about.path / name
        if not source.exists():
            return
        if not self._store.is_remote:
            hard_link(source, self._files / name)
        elif source.is_dir():
            self._client.log_artifacts(self._id, str(source), name)
        else:
            self._client.log_artifact(self._id, str(source), posixpath.dirname(name) or None)

    def _send_model(self, data: Mapping[str, Any]) -> None:
        source = self.about.path / data["name"]
        if source.is_dir():
            run = self._client.get_run(self._id)
            files = None if self._store.is_remote else self._files.with_name("model")
            send_model(self._client, run, source, data, files, list(_scores(self.about)))


def legal_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a metric or param: `p@5` → `p_at_5`, `loss[0]` → `loss.0`."""
    name = re.sub(r"\[([^\]]*)\]", r".\1", name.replace("@", "_at_"))
    name = re.sub(r"[^\w\-. :/]", "_", name)
    name = posixpath.normpath("/" + name).strip("/")
    return name[:_LONGEST_NAME].rstrip("/.") or "_"


def _scores(about: About) -> Iterator[Metric]:
    """Yield the final scores of a run, equal to the points that were sent."""
    for event, _ in read_events(about.path):
        if event.kind == "metrics":
            for key, value in event.data["values"].items():
                if key.startswith("eval/") and math.isfinite(float(value)):
                    yield Metric(legal_name(key), float(value), int(event.time * 1000), int(event.data["step"]))


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_PARAM else value[: _LONGEST_PARAM - 1] + "…"


DATA = "model.sentence_transformer"
"""Directory in a logged model's artifacts, as MLflow's flavor names it."""
_KIND = "sentence encoder"


def send_model(
    client: MlflowClient,
    run: Run,
    source: Path,
    data: Mapping[str, Any],
    files: Path | None,
    scores: Sequence[Metric],
) -> None:
    """Create the logged model of a run, or complete one that an interrupted call left.

    Args:
        client: Client of the store.
        run: The run in MLflow.
        source: Directory of the model.
        data: Fields "title" and "about" of the event: name and params of the logged model.
        files: Directory for links to the files that MLflow shows, or None for a server, which receives copies.
        scores: Final scores. They must equal the run's, because MLflow keeps one of two equal points.
    """
    run_id, place = run.info.run_id, run.info.experiment_id
    found = next(iter(client.search_logged_models([place], f"source_run_id = '{run_id}'")), None)
    made = found or client.create_logged_model(
        place, legal_model_name(data["title"]), run_id, params=dict(data["about"]), model_type=_KIND
    )
    _send_files(client, source, run_id, made, files)
    points = [Metric(one.key, one.value, one.timestamp, one.step, made.model_id) for one in scores]
    if points:
        client.log_batch(run_id, metrics=points)
    if not run.outputs.model_outputs:
        client.log_outputs(run_id, [LoggedModelOutput(made.model_id, max((one.step for one in points), default=0))])
    client.finalize_logged_model(made.model_id, "READY")


def _send_files(client: MlflowClient, source: Path, run_id: str, made: LoggedModel, files: Path | None) -> None:
    if files is not None:
        link_folder(local_folder(made.artifact_location), files)
        hard_link(source, files / DATA)
    else:
        client.log_model_artifacts(made.model_id, str(source), DATA)
    if not (source / "modules.json").exists():
        return  # sentence-transformers cannot load the model
    with TemporaryDirectory() as temporary:
        description = (files or Path(temporary)) / "MLmodel"
        description.write_text(_description(run_id, made.model_id), encoding="utf-8")
        if files is None:
            client.log_model_artifact(made.model_id, str(description))


def legal_model_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a model: "mini/ifcl_en seed 0" → "mini-ifcl_en seed 0"."""
    return re.sub(r"[/:.%\"']", "-", name) or "model"


def _description(run_id: str, model_id: str) -> str:
    described = Model(run_id=run_id, model_id=model_id)
    described.add_flavor("sentence_transformers", code=None)
    described.add_flavor("python_function", loader_module="mlflow.sentence_transformers", data=DATA)
    text: str = described.to_yaml()
    return text


def link_folder(link: Path | None, folder: Path) -> None:
    """Create MLflow's artifact directory as a symbolic link to a directory of the run's record.

    Links inside the directory are not possible, because MLflow rejects links that lead out of it. A relative link
    remains valid after a move.
    """
    make_folder(folder)
    if link is not None and not link.is_symlink() and not link.exists():
        make_folder(link.parent)
        link.symlink_to(os.path.relpath(folder, link.parent))


def hard_link(source: Path, target: Path) -> None:
    """Create hard links to a file, or to all files of a directory. Copy if the file system has no hard links."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    else:
        make_folder(target.parent)
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
