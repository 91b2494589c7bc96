"""MLflow as a mirror of records, through its public interface.

The artifacts on this machine are links to the files of a run, which need no disk space. Its model is a logged model,
which the Models tab shows with its scores, files and run. `mlflow.sentence_transformers.log_model` would load the model
and save it again, which takes 1.1 s and needs a second copy.
"""

from __future__ import annotations

import json
import logging
import math
import os
import posixpath
import re
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from uuid import uuid4

from mlflow import MlflowClient, entities
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from sqlalchemy.engine import URL, make_url

from cse_cli.core.environment import without_password
from cse_cli.core.paths import home
from cse_cli.mirrors.mirror import Mirror, about_tags, reason, warn
from cse_cli.runs.details import settings_of
from cse_cli.runs.events import FILE, Event, read_events
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import ABOUT, RECIPE
from registry.errors import TrackingError
from registry.paths import make_folder
from registry.resources.models import is_native

_FILES = "model.sentence_transformer"
"""Directory in a logged model's artifacts in which MLflow's loaders expect its files."""
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "lost": "KILLED"}
_REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "ENDPOINT_NOT_FOUND")
"""Error codes of requests that MLflow will always reject. Other codes can be temporary."""
_LONGEST_NAME, _LONGEST_DATASET, _LONGEST_DIGEST = 250, 500, 36
_BUSY_SECONDS = 20.0
"""Longest time to wait for another program that has locked the database."""

logging.getLogger("alembic").setLevel(logging.ERROR)
logging.getLogger("mlflow").setLevel(logging.ERROR)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints tracebacks of errors that it raises


def uri() -> str:
    """Return the address of the store: `MLFLOW_TRACKING_URI`, else the database in the state directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or address_of(database())


def address_of(file: Path) -> str:
    """Return the address of an SQLite file. SQLAlchemy 2.1 decodes "%", 2.0 does not, and cannot address a "?"."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def is_own() -> bool:
    """Return whether the store is the database in the state directory."""
    return not os.environ.get("MLFLOW_TRACKING_URI")


def is_remote() -> bool:
    """Return whether the store is a server, which stores the artifacts itself."""
    return uri().startswith(("http://", "https://"))


def database() -> Path:
    """Return the path of the database in the state directory."""
    return home() / "mlflow.db"


def artifacts() -> Path:
    """Return the directory of the artifacts if no server stores them."""
    return home() / "artifacts"


class MlflowMirror(Mirror):
    """A run in MLflow: in a database or on a server."""

    name = "mlflow"

    @classmethod
    def connect(cls) -> str:
        """Create the database in the state directory if it is missing, and check that the store responds."""
        address = uri()
        try:
            if is_own() and not database().exists():
                create_database(database())
            if address.startswith("sqlite:"):  # MLflow would try a locked or read-only database for 100 s
                with closing(sqlite3.connect(make_url(address).database or "", timeout=_BUSY_SECONDS)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
            first = MlflowClient(address).search_experiments(entities.ViewType.ALL, 1, order_by=["creation_time ASC"])
        except Exception as error:  # MLflow, SQLAlchemy, alembic and database drivers raise different exceptions
            raise _unusable(reason(error)) from error
        # The time differs after you delete the database. So all runs are sent to the new one.
        return "#".join([without_password(address), *(str(one.creation_time) for one in first)])

    def open(self, parent: str) -> str:
        """Create the run in the experiment of its group, or open it in any experiment."""
        self._client, self._scores = MlflowClient(uri()), list[entities.Metric]()
        first = next(read_events(self.about.path), None)
        self._began = int((self.about.created.timestamp() if first is None else first[0].time) * 1000)
        everywhere = [one.experiment_id for one in self._client.search_experiments(entities.ViewType.ALL)]
        same = f"tags.`cse.run_id` = '{self.about.run_id}'"
        if found := self._client.search_runs(everywhere, same, entities.ViewType.ALL, 1):
            run = found[0]
        else:
            with suppress(MlflowException):  # the experiment exists, or another process has created it
                self._client.create_experiment(self.about.group, None if is_remote() else artifacts().as_uri())
            experiment = str(self._client.get_experiment_by_name(self.about.group).experiment_id)
            run = self._client.create_run(experiment, self._began, {"cse.run_id": self.about.run_id}, self.about.name)
        if run.info.lifecycle_stage == entities.LifecycleStage.DELETED:
            return ""
        self._id, self._place = str(run.info.run_id), run.info.experiment_id
        self._files = self.about.path / "mirrors" / "mlflow" / "run"
        self._is_linked = self._link(run.info.artifact_uri, self._files)
        tags = about_tags(self.about) | ({"mlflow.parentRunId": parent} if parent else {})
        params = [entities.Param(legal_name(key), value) for key, value in settings_of(self.about.run_id).items()]
        self._client.log_batch(self._id, params=params, tags=[entities.RunTag(*pair) for pair in tags.items()])
        for name in (ABOUT, RECIPE):
            self._send_file(name)
        return self._id

    def send(self, events: Sequence[Event]) -> None:
        """Send all points and tags in one request, then other events, and the status last."""
        points, tags = [], dict[str, str]()
        for event in events:
            tags |= _tags(event)
            if event.kind in ("metrics", "system"):
                # The step of system metrics is the seconds since the start.
                moment, step = int(event.time * 1000), int(event.data.get("step", event.time - self._began / 1000))
                values = {legal_name(key): float(value) for key, value in event.data["values"].items()}
                points += [entities.Metric(key, value, moment, step) for key, value in values.items()]
        points = [point for point in points if not math.isinf(point.value)]  # MLflow would show 1.8e308
        self._scores += [point for point in points if point.key.startswith("eval/") and math.isfinite(point.value)]
        self._client.log_batch(self._id, metrics=points, tags=[entities.RunTag(*pair) for pair in tags.items()])
        for event in events:
            try:
                self._send_other(event)
            except MlflowException as error:
                if error.error_code not in _REFUSALS:
                    raise
                warn(f"mlflow rejected an event of run {self.about.short} ({event.kind}): {reason(error)}")
        last = next((event for event in reversed(events) if event.kind in ("started", *_STATUS)), None)
        if last is not None and last.kind in _STATUS:
            self._send_file(FILE)
            self._client.set_terminated(self._id, _STATUS[last.kind], int(last.time * 1000))
        elif last is not None:
            self._client.update_run(self._id, status="RUNNING")

    def _send_other(self, event: Event) -> None:
        data = event.data
        if event.kind == "dataset":  # the end of a path identifies it better than its start
            about = data["name"][-_LONGEST_DATASET:], data["digest"][:_LONGEST_DIGEST], "local"
            dataset = entities.Dataset(*about, json.dumps({"uri": data["source"]}))
            tag = entities.InputTag("mlflow.data.context", data["context"])
            self._client.log_inputs(self._id, [entities.DatasetInput(dataset, [tag])])
        elif event.kind == "file":
            self._send_file(data["name"])
        elif event.kind == "model" and (self.about.path / data["name"]).is_dir():
            self._send_model(self.about.path / data["name"], data["title"], data["about"])

    def _link(self, place: str, folder: Path) -> bool:
        """Replace an artifact directory by a symbolic link to a directory of the record, which is deleted with it.

        Links inside the artifact directory are not possible, because MLflow rejects links that lead out of it. Return
        False if a server stores the artifacts.
        """
        address = urlparse(place)
        if is_remote() or address.scheme not in ("", "file"):
            return False
        link = Path(unquote(address.path))
        make_folder(folder)
        make_folder(artifacts())
        if is_own() and not any(each.exists() and each.samefile(artifacts()) for each in link.parents):
            raise _unusable(f"the state directory was moved or copied, and the database contains {link}")
        make_folder(link.parent)
        if not link.is_symlink() and not link.exists():
            link.symlink_to(os.path.relpath(folder, link.parent))  # a relative link remains valid after a move
        return True

    def _send_file(self, name: str) -> None:
        """Show a file or directory of the record as an artifact, if it still exists."""
        source = self.about.path / name
        if self._is_linked and source.exists():
            hard_link(source, self._files / name)
        elif source.is_dir():
            self._client.log_artifacts(self._id, str(source), name)
        elif source.exists():
            self._client.log_artifact(self._id, str(source), posixpath.dirname(name) or None)

    def _send_model(self, source: Path, title: str, params: Mapping[str, Any]) -> None:
        """Create the logged model of the run, or complete one that an interrupted call left."""
        client, name = self._client, re.sub(r"[/:.%\"']", "-", title) or "model"  # MLflow rejects these characters
        found = client.search_logged_models([self._place], f"source_run_id = '{self._id}'")
        made = next(iter(found), None) or client.create_logged_model(
            self._place, name, self._id, params=dict(params), model_type="sentence encoder"
        )
        folder = self._files.with_name("model")
        hard_link(source, folder / _FILES)
        if is_native(source):  # MLflow opens models without `trust_remote_code`
            described = Model(run_id=self._id, model_id=made.model_id)
            described.add_flavor("sentence_transformers", code=None)
            described.add_flavor("python_function", loader_module="mlflow.sentence_transformers", data=_FILES)
            described.save(folder / "MLmodel")
        if not self._link(made.artifact_location, folder):
            client.log_model_artifacts(made.model_id, str(folder))
        for point in self._scores:  # equal to the points of the run: MLflow keeps one of two equal points
            client.log_metric(self._id, point.key, point.value, point.timestamp, point.step, model_id=made.model_id)
        if not client.get_run(self._id).outputs.model_outputs:
            last = max((point.step for point in self._scores), default=0)
            client.log_outputs(self._id, [entities.LoggedModelOutput(made.model_id, last)])
        client.finalize_logged_model(made.model_id, "READY")


def create_database(file: Path) -> None:
    """Let MLflow create its tables in an SQLite file, which takes about six seconds of processor time.

    Two processes that create one database damage it, and MLflow cannot continue after an interruption. So a lock lets
    one process create it, under another name until it is complete.
    """
    with FileLock(file.with_name(f"{file.name}.lock")):
        if file.exists():
            return
        for left in file.parent.glob(f"{file.name}.new-*"):
            left.unlink()
        new = file.with_name(f"{file.name}.new-{uuid4().hex}")  # a new name, because MLflow caches stores by name
        MlflowClient(address_of(new)).search_experiments(max_results=1)
        new.replace(file)


def legal_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a metric or param: `p@5` → `p_at_5`, `loss[0]` → `loss.0`."""
    name = re.sub(r"\[([^\]]*)\]", r".\1", name.replace("@", "_at_"))
    name = posixpath.normpath("/" + re.sub(r"[^\w\-. :/]", "_", name)).strip("/")
    return name[:_LONGEST_NAME].rstrip("/.") or "_"


def hard_link(source: Path, target: Path) -> None:
    """Create hard links to a file, or to all files of a directory. Copy if the file system has no hard links."""
    if source.is_dir():
        for file in source.iterdir():
            hard_link(file, target / file.name)
        return
    make_folder(target.parent)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def _tags(event: Event) -> dict[str, str]:
    data, values = event.data, event.data.get("values", {})
    match event.kind:
        case "tags":
            return dict(values)
        case "started":
            return {f"cse.{name}": str(data[name]) for name in ("host", "device") if data.get(name)}
        case "metrics" if "eval/avg" in values:
            return {"avg": f"{values['eval/avg']:.2f}"}
        case kind if kind in _STATUS:
            return {"cse.state": kind.upper(), "cse.reason": str(data.get("reason", ""))}
    return {}


def _unusable(why: str) -> TrackingError:
    todo = "start the server, or correct MLFLOW_TRACKING_URI (sqlite:///…, postgresql://… or http://…), or unset it"
    if is_own():
        todo = f"make {database()} writable, or delete it: `cse runs sync` fills a new one"
    problem = f"cannot use the tracking store {without_password(uri())}: {why}"
    return TrackingError(problem, todo, code="mirrors.unusable_store")
