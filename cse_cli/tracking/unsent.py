"""What a run's store has not taken, kept in the run's folder until it does.

Every metric of a run is in its `metrics.jsonl`. A write that the store refuses is kept below `unsent/`, and whoever
sends that later (`sync`, at the start of every run and in `cse runs sync`; the run itself once its store answers again)
also sends the metrics the store does not have.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from pydantic import BaseModel, ConfigDict, ValidationError

from cse_cli.core.paths import runs
from cse_cli.tracking.files import link_folder, local_folder
from cse_cli.tracking.logged_model import SavedModel
from cse_cli.tracking.store import REFUSED, Store, open_store, patience, reason
from cse_cli.tracking.tracker import Status
from registry.errors import TrackingError

_LONGEST_TAG = 8000
_LONGEST_DIGEST = 36
_UPLOAD_SECONDS = 120


class DatasetRead(BaseModel):
    """A data set a run read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    digest: str
    context: str
    source: str


class Change(BaseModel):
    """Changes of a run other than its metrics; made twice they are as made once.

    Args:
        folders: Artifact folder → folder on this machine.
        model: That the run has saved.
        status: How the run ended.
        ended: When, in milliseconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tags: dict[str, str] = {}
    datasets: tuple[DatasetRead, ...] = ()
    texts: dict[str, str] = {}
    folders: dict[str, Path] = {}
    model: SavedModel | None = None
    status: Status | None = None
    ended: int | None = None

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Make the changes in the store."""
        if self.tags:
            client.log_batch(run_id, tags=[RunTag(key, value[:_LONGEST_TAG]) for key, value in self.tags.items()])
        for read in self.datasets:
            dataset = Dataset(read.name, read.digest[:_LONGEST_DIGEST], "local", json.dumps({"uri": read.source}))
            client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", read.context)])])
        for name, text in self.texts.items():
            client.log_text(run_id, text, name)
        if self.folders:
            self._send_folders(client, run_id)
        if self.model is not None:
            with patience(_UPLOAD_SECONDS, retries=1):
                self.model.send(client, run_id)
        if self.status is not None:
            client.set_terminated(run_id, self.status, self.ended)

    def _send_folders(self, client: MlflowClient, run_id: str) -> None:
        artifacts = local_folder(client.get_run(run_id).info.artifact_uri)
        for name, folder in self.folders.items():
            if artifacts is not None:
                link_folder(folder, artifacts / name)
                continue
            with patience(_UPLOAD_SECONDS, retries=1):  # a server may work for a while on a large file
                client.log_artifacts(run_id, str(folder), name)

    def then(self, later: Change) -> Change:
        """Return both changes as one."""
        return Change(
            tags=self.tags | later.tags,
            datasets=(*self.datasets, *later.datasets),
            texts=self.texts | later.texts,
            folders=self.folders | later.folders,
            model=later.model or self.model,
            status=later.status or self.status,
            ended=later.ended or self.ended,
        )

    def count(self) -> int:
        """Return how many changes these are."""
        once = (self.model is not None) + (self.status is not None)
        return len(self.tags) + len(self.datasets) + len(self.texts) + len(self.folders) + once


class Unsent:
    """One run's record on this machine.

    Args:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.metrics = runs() / run_id / "metrics.jsonl"
        self.folder = runs() / run_id / "unsent"
        self._file = self.folder / "changes.json"

    def exists(self) -> bool:
        """Return whether anything waits to be sent."""
        return self._file.exists()

    def append(self, values: Mapping[str, float], step: int, time: int) -> None:
        """Append the values of a step, taken at a time in milliseconds, to `metrics.jsonl`."""
        self.metrics.parent.mkdir(parents=True, exist_ok=True)
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time, "values": values}) + "\n")

    def end_torn_line(self) -> None:
        """Keep half a line, written when the process was killed, apart from the next one."""
        if self.metrics.exists():
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write("\n")

    def keep(self, uri: str, change: Change) -> None:
        """Keep a change that the store at `uri` refused, and links to its files: training may delete them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self.folder.mkdir(parents=True, exist_ok=True)  # another process may have sent and removed it meanwhile
            folders, model = {}, change.model
            for name, folder in change.folders.items():
                folders[name] = self.folder / "folders" / name
                link_folder(folder, folders[name])
            if model is not None:
                kept = self.folder / "model"
                link_folder(model.folder, kept)
                model = model.model_copy(update={"folder": kept})
            before = self._read()[1] if self.exists() else Change()
            both = before.then(change.model_copy(update={"folders": folders, "model": model}))
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps({"uri": uri, "change": both.model_dump(mode="json")}), encoding="utf-8")
            new.replace(self._file)

    def uri(self) -> str:
        """Return the address of the store that this belongs to."""
        return self._read()[0]

    def send(self, client: MlflowClient) -> int:
        """Send every metric the store does not have and all changes; return how many.

        Stops with the store's exception at what it refuses; then everything stays, to be sent again.
        """
        with self._lock():
            if not self.exists():
                return 0
            change = self._read()[1]
            points = missing(client, self.run_id, list(self._points()), {})
            if points:
                client.log_batch(self.run_id, metrics=points)
            change.send(client, self.run_id)
            shutil.rmtree(self.folder)
            return len(points) + change.count()

    def _read(self) -> tuple[str, Change]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            return str(content["uri"]), Change.model_validate(content["change"])
        except (ValidationError, ValueError, KeyError) as error:
            raise OSError(f"{self._file} was written by another version of cse") from error

    def _points(self) -> Iterator[Metric]:
        for line in self.metrics.read_bytes().split(b"\n") if self.metrics.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:  # blank, or torn by a kill
                continue
            for key, value in record["values"].items():
                yield Metric(key, value, record["time"], record["step"])

    def _lock(self) -> FileLock:
        return FileLock(self.folder.with_suffix(".lock"))


def missing(
    client: MlflowClient, run_id: str, points: Sequence[Metric], known: dict[str, set[int]]
) -> Sequence[Metric]:
    """Return the points whose key and step the run does not have yet; a store would keep both.

    Args:
        client: Of the store.
        run_id: The run.
        points: In the order they were taken.
        known: Steps of each key that the run has, filled by asking once a key; the points returned are added.
    """
    new = []
    for point in points:
        if point.key not in known:
            known[point.key] = {metric.step for metric in client.get_metric_history(run_id, point.key)}
        if point.step not in known[point.key]:
            known[point.key].add(point.step)
            new.append(point)
    return new


def waiting() -> list[Unsent]:
    """Return every run on this machine that has something to send."""
    return [Unsent(path.parent.parent.name) for path in sorted(runs().glob("*/unsent/changes.json"))]


@dataclass(frozen=True)
class Sent:
    """What became of one run's waiting records.

    Args:
        records: How many its store took now.
        refused: Why not all, or None.
    """

    run_id: str
    records: int
    refused: str | None = None


def sync(store: Store | None = None) -> list[Sent]:
    """Send what waits on this machine, each run to the store it belongs to; where `store` is given, only to that."""
    return [sent for unsent in waiting() if (sent := _send(unsent, store)) is not None]


def _send(unsent: Unsent, store: Store | None) -> Sent | None:
    try:
        uri = unsent.uri()
        if store is not None and uri != store.uri:
            return None
        return Sent(unsent.run_id, unsent.send((store or open_store(uri)).client))
    except TrackingError as error:
        return Sent(unsent.run_id, 0, error.message)
    except REFUSED as error:
        return Sent(unsent.run_id, 0, reason(error))
