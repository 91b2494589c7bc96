"""Records a run in MLflow, and on disk while MLflow cannot be reached.

Sends what runs kept on disk while their store was away.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import Timeout as LockTimeout
from mlflow import MlflowClient
from mlflow.entities import Param
from mlflow.exceptions import MlflowException

from cse_cli.core.environment import without_password
from cse_cli.tracking import location as names
from cse_cli.tracking.location import is_remote
from cse_cli.tracking.reader import is_alive_here
from cse_cli.tracking.store import REFUSED, Store, open_store, patience, reason
from cse_cli.tracking.tracker import Status, unbroken
from cse_cli.tracking.writes import (
    AnyWrite,
    DatasetRead,
    End,
    Folder,
    History,
    Metrics,
    Pending,
    Point,
    Tags,
    Text,
    legal_name,
    waiting,
)
from registry.errors import CseError, TrackingError, UnknownNameError

FLUSH_SECONDS = 2.0
FLUSH_POINTS = 500
HEARTBEAT_SECONDS = 60.0
_FIRST_RETRY_SECONDS = 5.0
_LONGEST_RETRY_SECONDS = 120.0
_LONGEST_PARAM = 6000


class MlflowTracker:
    """A run in an MLflow store.

    Args:
        store: Where it is.
        run_id: Which one.
        resumed: Whether it may already have points of the steps to come.
    """

    def __init__(self, store: Store, run_id: str, resumed: bool = False) -> None:
        self.run_id = run_id
        self._client = store.client
        self._pending = Pending(run_id, store.uri)
        self._history = History(store.client, run_id) if resumed else None
        self._points: list[Point] = []
        self._flushed = time.monotonic()
        self._beaten = time.monotonic()
        self._sending = False
        self._finished = False
        self._infinite: set[str] = set()
        self._wait = _FIRST_RETRY_SECONDS
        self._retry_at = 0.0
        # A server's connection may be broken into, and may be long in answering.
        self._shield = nullcontext if is_remote(store.uri) else unbroken

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step; written at most `FLUSH_SECONDS` later, if more follow, or by `flush`."""
        now = int(time.time() * 1000)
        for key, value in values.items():
            if math.isinf(value):
                self._note_infinite(legal_name(key), value, step)
            else:
                self._points.append(Point(key=legal_name(key), value=float(value), step=step, time=now))
        if len(self._points) >= FLUSH_POINTS or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def tags(self, values: Mapping[str, str]) -> None:
        """Set or replace tags."""
        self._write(Tags(values=dict(values)))

    def text(self, name: str, text: str) -> None:
        """Keep a text as an artifact."""
        self._write(Text(name=name, text=text))

    def folder(self, path: Path, name: str) -> None:
        """Keep the files of a folder as artifacts."""
        self._write(Folder(path=path, name=name))

    def dataset(self, name: str, digest: str, context: str, source: str) -> None:
        """Record a data set the run read."""
        self._write(DatasetRead(name=name, digest=digest, context=context, source=source))

    def flush(self) -> None:
        """Write the points held in memory, and once a minute that the run is alive."""
        self._flushed = time.monotonic()
        if self._points:
            count = len(self._points)
            if self._sending:
                # A signal interrupted the last attempt: the store may have these points or not.
                self._history = History(self._client, self.run_id)
            self._sending = True
            self._write(Metrics(points=tuple(self._points[:count])))
            del self._points[:count]
            self._sending = False
        if time.monotonic() - self._beaten >= HEARTBEAT_SECONDS:
            self._beaten = time.monotonic()
            self._write(Tags(values={names.HEARTBEAT: _now()}))

    def finish(self, status: Status) -> None:
        """Write everything and close the run."""
        if self._finished:
            return
        self.flush()
        self._retry_at = 0.0
        self._write(End(status=status, time=int(time.time() * 1000)))
        self._finished = True
        if self._pending.exists():
            _warn(f"run {self.run_id[:8]} is complete in {self._pending.folder}; 'cse runs sync' sends it to the store")

    def _write(self, write: AnyWrite) -> None:
        with self._shield():
            self._send_or_keep(write)

    def _send_or_keep(self, write: AnyWrite) -> None:
        if self._pending.exists() and not self._caught_up():
            self._pending.add(write)
            return
        try:
            if isinstance(write, Metrics) and self._history is not None:
                self._history.missing(write).send(self._client, self.run_id)
            else:
                write.send(self._client, self.run_id)
        except REFUSED as error:
            self._pending.add(write)
            self._postpone()
            _warn(f"the tracking store does not answer ({reason(error)}); keeping records in {self._pending.folder}")

    def _caught_up(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            with patience(3):
                self._client.get_run(self.run_id)
            self._pending.replay(self._client)
        except (*REFUSED, LockTimeout):
            self._postpone()
            return False
        self._wait = _FIRST_RETRY_SECONDS
        _warn("the tracking store answers again; everything kept has been sent")
        return True

    def _postpone(self) -> None:
        self._retry_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _LONGEST_RETRY_SECONDS)

    def _note_infinite(self, key: str, value: float, step: int) -> None:
        # MLflow would store 1.8e308; the first step that went wrong says more.
        if key not in self._infinite:
            self._infinite.add(key)
            self.tags({f"{names.INFINITE}.{key}": f"{value} at step {step}"})


def start_run(
    name: str, params: Mapping[str, str], tags: Mapping[str, str], run_id: str | None, parent: str | None
) -> MlflowTracker:
    """Do what `cse_cli.tracking.start` says."""
    with unbroken():
        return _started(open_store(), name, params, tags, run_id, parent)


def _started(
    store: Store, name: str, params: Mapping[str, str], tags: Mapping[str, str], run_id: str | None, parent: str | None
) -> MlflowTracker:
    try:
        send_waiting(store)
        if run_id is None:
            return MlflowTracker(store, _create(store, name, params, {**_process(), **tags}, parent))
        _reopen(store.client, run_id, name, {**_process(), **tags})
        return MlflowTracker(store, run_id, resumed=True)
    except REFUSED as error:
        raise TrackingError(
            f"the tracking store {without_password(store.uri)} did not take the run: {reason(error)}",
            "run 'cse doctor' to see what it says, or unset MLFLOW_TRACKING_URI to record on this machine",
        ) from error


def _create(store: Store, name: str, params: Mapping[str, str], tags: Mapping[str, str], parent: str | None) -> str:
    standard = {
        "mlflow.user": _user(),
        "mlflow.source.name": "cse",
        "mlflow.source.type": "LOCAL",
        **({"mlflow.parentRunId": parent} if parent is not None else {}),
    }
    run = store.client.create_run(store.experiment, tags={**standard, **tags}, run_name=name)
    run_id = str(run.info.run_id)
    values = [Param(legal_name(key), _cut(value)) for key, value in params.items()]
    if values:
        store.client.log_batch(run_id, params=values)
    return run_id


def _reopen(client: MlflowClient, run_id: str, name: str, tags: Mapping[str, str]) -> None:
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise UnknownNameError(f"there is no run {run_id!r} in this store", "'cse runs ls' shows the runs") from error
    if run.info.status == "RUNNING" and is_alive_here(run.data.tags):
        raise CseError(
            f"run {run_id[:8]} is still going on: process {run.data.tags[names.PID]} on this machine",
            "wait for it, or end that process first",
        )
    client.update_run(run_id, status="RUNNING", name=name or None)
    Tags(values=dict(tags)).send(client, run_id)


def _process() -> dict[str, str]:
    """Return what tells later whether the run's process still lives; a process id alone may be another's by then."""
    process = psutil.Process()
    return {
        names.HOST: socket.gethostname(),
        names.PID: str(os.getpid()),
        names.PROCESS_STARTED: f"{process.create_time():.2f}",
        names.HEARTBEAT: _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user id without a name


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_PARAM else value[: _LONGEST_PARAM - 1] + "…"


def _warn(message: str) -> None:
    sys.stderr.write(f"warning: {message}\n")


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


def send_waiting(store: Store) -> None:
    """Send what earlier runs kept for this store; one that is refused stays and is none of the caller's business."""
    for pending in waiting():
        if pending.uri == store.uri:
            with contextlib.suppress(*REFUSED, LockTimeout):
                pending.replay(store.client)


def sync() -> list[Sent]:
    """Send everything that waits on this machine, each run to the store it belongs to."""
    return [_sent(pending) for pending in waiting()]


def _sent(pending: Pending) -> Sent:
    try:
        return Sent(pending.run_id, pending.replay(open_store(pending.uri).client))
    except TrackingError as error:
        return Sent(pending.run_id, 0, error.message)
    except LockTimeout:
        return Sent(pending.run_id, 0, "another process is sending them")
    except REFUSED as error:
        return Sent(pending.run_id, 0, reason(error))
