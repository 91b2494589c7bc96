"""What a run's store has not taken, kept in the run's folder until it does, or is given up.

Every metric of a run is in its `metrics.jsonl`. A write that the store refuses is kept below `unsent/`, and whoever
sends that later (`sync`, at the start of every run and in `cse runs sync`; the run itself once its store answers again)
also sends the metrics the store does not have.

A store that is away takes the records when it is back. One that answers and refuses a record, as MLflow does for a run
deleted in its pages, takes it no more unless a person helps: the other records are sent, and `cse runs sync --discard`
puts this one aside.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, Metric, RunTag
from mlflow.exceptions import MlflowException
from pydantic import BaseModel, ConfigDict

from cse_cli.core.checksums import with_checksum, without_checksum
from cse_cli.core.environment import without_password
from cse_cli.core.paths import runs
from cse_cli.tracking import location
from cse_cli.tracking.files import link_folder, local_folder
from cse_cli.tracking.logged_model import SavedModel
from cse_cli.tracking.store import REFUSED, Store, open_store, patience, reason
from cse_cli.tracking.tracker import Status
from registry.errors import TrackingError
from registry.paths import make_folder

_LONGEST_TAG = 8000
_LONGEST_DIGEST = 36
_LONGEST_DATASET = 500
_UPLOAD_SECONDS = 120
_REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")
"""MLflow's codes for what it will refuse again; one for a store or a server in trouble is another."""


class NotTakenError(OSError):
    """A store that answers refuses records.

    Args:
        why: In its words, or ours.
        run: Whether it takes nothing of the run.
    """

    def __init__(self, why: str, *, run: bool = False) -> None:
        super().__init__(why)
        self.run = run


def is_refusal(error: BaseException) -> bool:
    """Return whether a store that answers refuses a record, and would do so again."""
    return isinstance(error, NotTakenError) or (isinstance(error, MlflowException) and error.error_code in _REFUSALS)


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
            name = read.name[-_LONGEST_DATASET:]  # the end of a path says more
            dataset = Dataset(name, read.digest[:_LONGEST_DIGEST], "local", json.dumps({"uri": read.source}))
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

    def parts(self) -> Iterator[Change]:
        """Yield each of these changes by itself, how the run ended last."""
        yield from (Change(tags={key: value}) for key, value in self.tags.items())
        yield from (Change(datasets=(read,)) for read in self.datasets)
        yield from (Change(texts={name: text}) for name, text in self.texts.items())
        yield from (Change(folders={name: folder}) for name, folder in self.folders.items())
        if self.model is not None:
            yield Change(model=self.model)
        if self.status is not None:
            yield Change(status=self.status, ended=self.ended)

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
        self._folders, self._model = self.folder / "folders", self.folder / "model"

    def exists(self) -> bool:
        """Return whether anything waits to be sent."""
        return self._file.exists()

    def append(self, values: Mapping[str, float], step: int, time: int) -> None:
        """Append the values of a step, taken at a time in milliseconds, to `metrics.jsonl`."""
        make_folder(self.metrics.parent)
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(with_checksum({"step": step, "time": time, "values": dict(values)})) + "\n")

    def end_torn_line(self) -> None:
        """Keep half a line, written when the process was killed, apart from the next one."""
        if self.metrics.exists():
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write("\n")

    def keep(self, uri: str, change: Change) -> None:
        """Keep a change that the store at `uri` refused, and links to its files: training may delete them."""
        make_folder(self.folder)
        with self._lock():
            make_folder(self.folder)  # another process may have sent and removed it meanwhile
            before = self._before()
            for name, folder in change.folders.items():
                link_folder(folder, self._folders / name)
            if change.model is not None:
                link_folder(change.model.folder, self._model)
            self._write(uri, before.then(change))

    def _before(self) -> Change:
        """Return what waits already; where that is damaged it is put aside."""
        if not self.exists():
            return Change()
        try:
            return self._read()[1]
        except NotTakenError:
            self._put_aside()
            make_folder(self.folder)
            return Change()

    def uri(self) -> str:
        """Return the address of the store that this belongs to, without a password."""
        return without_password(self._read()[0])  # older versions wrote it in clear

    def send(self, client: MlflowClient) -> int:
        """Send every metric the store does not have and all changes; return how many.

        Stops with the store's exception where it is away; then everything stays, to be sent again.

        Raises:
            NotTakenError: The store refuses the run, or some changes; the others are sent, and these stay.
        """
        with self._lock():
            if not self.exists():
                return 0
            uri, change = self._read()
            self._demand_run(client)
            points = self.send_metrics(client)
            refused: list[tuple[Change, MlflowException]] = []
            for part in change.parts():
                try:
                    part.send(client, self.run_id)
                except MlflowException as error:
                    if not is_refusal(error):
                        raise
                    refused.append((part, error))
            if refused:
                self._write(uri, reduce(Change.then, (part for part, _ in refused)))
                raise NotTakenError(reason(refused[0][1]))
            shutil.rmtree(self.folder)
            return points + change.count()

    def send_metrics(self, client: MlflowClient) -> int:
        """Send every metric the store does not have; return how many."""
        points = missing(client, self.run_id, list(self._points()), {})
        if points:
            client.log_batch(self.run_id, metrics=points)
        return len(points)

    def _demand_run(self, client: MlflowClient) -> None:
        """Refuse to send anything of a run that its store no longer has.

        Raises:
            NotTakenError: It is deleted.
        """
        try:
            stage = client.get_run(self.run_id).info.lifecycle_stage
        except MlflowException as error:
            if not is_refusal(error):
                raise
            stage = LifecycleStage.DELETED
        if stage == LifecycleStage.DELETED:
            raise NotTakenError("the run has been deleted there", run=True)

    def discard(self) -> Path:
        """Put what waits aside, so that nobody sends it any more; return the folder that has it."""
        with self._lock():
            return self._put_aside()

    def _put_aside(self) -> Path:
        aside = next(place for n in count(1) if not (place := self.folder.with_name(f"refused-{n}")).exists())
        return self.folder.rename(aside)

    def _write(self, uri: str, change: Change) -> None:
        new = self._file.with_suffix(".new")
        kept = {"uri": without_password(location.kept(uri)), "change": change.model_dump(mode="json")}
        new.write_text(json.dumps(with_checksum(kept)), encoding="utf-8")
        new.replace(self._file)

    def _read(self) -> tuple[str, Change]:
        """Return the address of the store, and what waits for it.

        Raises:
            NotTakenError: The file is damaged, or of another version.
        """
        try:
            content = without_checksum(json.loads(self._file.read_text(encoding="utf-8")))
            return location.found(str(content["uri"])), self._with_links(Change.model_validate(content["change"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotTakenError(f"{self._file} is damaged, or of another version of cse") from error

    def first_time(self) -> int | None:
        """Return when the first metric was recorded, in milliseconds; None without one."""
        return next((point.timestamp for point in self._points()), None)

    def _with_links(self, change: Change) -> Change:
        """Return a kept change with the links to its files, wherever the state directory lies by now."""
        folders = {name: self._folders / name for name in change.folders}
        model = None if change.model is None else change.model.model_copy(update={"folder": self._model})
        return change.model_copy(update={"folders": folders, "model": model})

    def _points(self) -> Iterator[Metric]:
        for line in self.metrics.read_bytes().split(b"\n") if self.metrics.is_file() else ():
            try:
                record = without_checksum(json.loads(line))
                points = [Metric(key, value, record["time"], record["step"]) for key, value in record["values"].items()]
            except (ValueError, KeyError, TypeError, AttributeError):  # blank, torn by a kill, or damaged
                continue
            yield from points

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
        aside: Where the records that it refuses are now; None where none was given up.
        by_store: Whether the store answers and refuses some.
    """

    run_id: str
    records: int
    refused: str | None = None
    aside: Path | None = None
    by_store: bool = False


def sync(store: Store | None = None, *, discard: bool = False) -> list[Sent]:
    """Send what waits on this machine.

    Args:
        store: Only what belongs to it; None sends each run to the store it belongs to.
        discard: Put aside what a store that answers refuses.
    """
    return [sent for unsent in waiting() if (sent := _send(unsent, store, discard)) is not None]


def _usable(uri: str) -> str:
    """Return the address of a store that is kept without its password with the one that is set now."""
    here = location.uri()
    if uri == without_password(here):
        return here
    if "***" in uri:
        raise TrackingError(f"its store is {uri}: set MLFLOW_TRACKING_URI to that address, with its password")
    return uri


def _send(unsent: Unsent, store: Store | None, discard: bool) -> Sent | None:
    try:
        uri = unsent.uri()
        if store is not None and uri != without_password(store.uri):
            return None
        return Sent(unsent.run_id, unsent.send((store or open_store(_usable(uri))).client))
    except TrackingError as error:
        return Sent(unsent.run_id, 0, error.message)
    except NotTakenError as error:
        aside = unsent.discard() if discard else None
        return Sent(unsent.run_id, 0, reason(error), aside, by_store=True)
    except REFUSED as error:
        return Sent(unsent.run_id, 0, reason(error))
