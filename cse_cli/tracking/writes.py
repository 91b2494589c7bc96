"""What can be written to a run, as values: sent to the store, or kept on disk until it answers.

Keeps what a store did not take, in order and on disk, and sends it when the store answers again.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cse_cli.core.paths import runs
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


_WRITE: TypeAdapter[AnyWrite] = TypeAdapter(AnyWrite)
_LOCK_SECONDS = 60.0


class Pending:
    """What one run's store has not taken yet.

    Args:
        run_id: The run.
        uri: The store it belongs to.
    """

    def __init__(self, run_id: str, uri: str) -> None:
        self.run_id = run_id
        self.uri = uri
        self.folder = runs() / run_id / "pending"
        self._journal = self.folder / "journal.jsonl"
        self._done = self.folder / "done"

    def exists(self) -> bool:
        """Return whether anything is waiting."""
        return self._journal.exists()

    def add(self, write: AnyWrite) -> None:
        """Keep a write; files are copied, since training may delete them before the store answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "uri").write_text(self.uri, encoding="utf-8")
            if isinstance(write, Folder):
                write = self._copied(write)
            with self._journal.open("ab") as file:
                # The newline first: a line torn by a kill must not swallow this one. The model's own dump, because
                # a type adapter's writes null for NaN.
                file.write(f"\n{write.model_dump_json()}\n".encode())

    def replay(self, client: MlflowClient) -> int:
        """Send everything in order and return how many writes that were.

        Stops with the store's exception at the first write it refuses; that one and all after it stay.
        """
        with self._lock():
            if not self.exists():
                return 0
            done = int(self._done.read_text()) if self._done.exists() else 0
            writes = list(self._read())
            sent = 0
            for write, count in _merged(writes[done:]):
                # A request may have been carried out although its answer was lost: ask what is there.
                wanted = History(client, self.run_id).missing(write) if isinstance(write, Metrics) else write
                wanted.send(client, self.run_id)
                sent += count
                self._remember(done + sent)
            shutil.rmtree(self.folder)
            return sent

    def _lock(self) -> FileLock:
        return FileLock(self.folder.with_suffix(".lock"), timeout=_LOCK_SECONDS)

    def _copied(self, write: Folder) -> Folder:
        number = sum(1 for _ in self.folder.glob("files-*"))
        copy = self.folder / f"files-{number}"
        shutil.copytree(write.path, copy)
        return write.model_copy(update={"path": copy})

    def _read(self) -> Iterator[AnyWrite]:
        with self._journal.open("rb") as file:
            for line in file:
                try:
                    if line.strip():
                        yield _WRITE.validate_json(line)
                except ValidationError as error:
                    if error.errors()[0]["type"] != "json_invalid":
                        raise OSError(f"{self._journal} has a record of another version of cse") from error
                    # Half a line: the process was killed while it wrote it.

    def _remember(self, count: int) -> None:
        new = self._done.with_suffix(".new")
        new.write_text(str(count))
        new.replace(self._done)


def _merged(writes: list[AnyWrite]) -> Iterator[tuple[AnyWrite, int]]:
    """Yield the writes with neighbouring metrics joined, each with how many it stands for."""
    for kind, group in groupby(writes, key=type):
        same = list(group)
        if kind is Metrics:
            yield Metrics(points=tuple(p for w in same if isinstance(w, Metrics) for p in w.points)), len(same)
        else:
            yield from ((write, 1) for write in same)


def waiting() -> list[Pending]:
    """Return every run on this machine that has something to send."""
    found = sorted(runs().glob("*/pending/journal.jsonl"))
    return [Pending(path.parent.parent.name, (path.parent / "uri").read_text(encoding="utf-8")) for path in found]
