"""What can be written to a run, as values: sent to the store, or kept on disk until it answers."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Annotated, Literal

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from pydantic import BaseModel, ConfigDict, Field

from cse_cli.tracking.store import patience
from cse_cli.tracking.tracker import Status

_LONGEST_NAME = 250
_LONGEST_TAG = 8000
_LONGEST_DIGEST = 36
_UPLOAD_SECONDS = 120


def legal_name(name: str) -> str:
    """Return the nearest name MLflow takes for a metric or param: ``p@5`` → ``p_at_5``, ``loss[0]`` → ``loss.0``."""
    name = re.sub(r"\[([^\]]*)\]", r".\1", name.replace("@", "_at_"))
    name = re.sub(r"[^\w\-. :/]", "_", name)
    name = posixpath.normpath("/" + name).strip("/")
    return name[:_LONGEST_NAME].rstrip("/.") or "_"


class Write(BaseModel):
    """One change of a run."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Make the change in the store; sending it twice is the same as once, but for `Metrics`."""
        raise NotImplementedError


class Point(BaseModel):
    """A metric's value at a step, with the time it was taken, in milliseconds."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    key: str
    value: float
    step: int
    time: int


class Metrics(Write):
    """Metric values; the store keeps doubles, so `History` leaves out what it already has."""

    kind: Literal["metrics"] = "metrics"
    points: tuple[Point, ...]

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Add the points."""
        if self.points:
            client.log_batch(run_id, metrics=[Metric(p.key, p.value, p.time, p.step) for p in self.points])


class Tags(Write):
    """Tags set or replaced."""

    kind: Literal["tags"] = "tags"
    values: dict[str, str]

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Set the tags."""
        client.log_batch(run_id, tags=[RunTag(key, value[:_LONGEST_TAG]) for key, value in self.values.items()])


class Text(Write):
    """A text artifact."""

    kind: Literal["text"] = "text"
    name: str
    text: str

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Store the text."""
        client.log_text(run_id, self.text, self.name)


class Folder(Write):
    """The files of a folder, as artifacts."""

    kind: Literal["folder"] = "folder"
    name: str
    path: Path

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Store the files; a server may think for a while about a large one."""
        with patience(_UPLOAD_SECONDS, retries=1):
            client.log_artifacts(run_id, str(self.path), self.name)


class DatasetRead(Write):
    """A data set the run read."""

    kind: Literal["dataset"] = "dataset"
    name: str
    digest: str
    context: str
    source: str

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Record the data set; MLflow keeps 36 characters of a digest."""
        source = json.dumps({"uri": self.source})
        dataset = Dataset(self.name, self.digest[:_LONGEST_DIGEST], "local", source)
        client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", self.context)])])


class End(Write):
    """The end of the run, with its time in milliseconds."""

    kind: Literal["end"] = "end"
    status: Status
    time: int

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Close the run."""
        client.set_terminated(run_id, self.status, self.time)


AnyWrite = Annotated[Metrics | Tags | Text | Folder | DatasetRead | End, Field(discriminator="kind")]


class History:
    """The points a run already has in the store, read once a key."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._steps: dict[str, set[int]] = {}

    def missing(self, metrics: Metrics) -> Metrics:
        """Return the points whose key and step the store does not have; MLflow would keep both."""
        return Metrics(points=tuple(p for p in metrics.points if p.step not in self._known(p.key)))

    def _known(self, key: str) -> set[int]:
        if key not in self._steps:
            self._steps[key] = {metric.step for metric in self._client.get_metric_history(self._run_id, key)}
        return self._steps[key]
