"""Records a run in MLflow, from a thread of its own.

Why not MLflow's asynchronous logging (`log_batch(..., synchronous=False)`)? Measured with 3.17 on sqlite:

* It writes metrics, params and tags only. Ctrl-C in the middle of any other write, which is made in the main thread,
  left the database locked in 3 of 3 trials, so that closing the run failed after 20 s and it stayed RUNNING.
* Ten threads write in any order: of 40 tags set five times in a row, 31 kept an older value.
* With MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS, one of 20 failed writes was reported, 19 passed as done
  (mlflow/mlflow#24953).
* Unbuffered, 200 calls of 12 metrics with a wait every 50 took 1.9 to 2.9 s of the processor, the thread below 1.1 s;
  the longest wait was 2.1 s against 1.1 s on the same loaded machine.
"""

from __future__ import annotations

import getpass
import math
import os
import posixpath
import re
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import psutil
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException

from cse_cli.core.environment import without_password
from cse_cli.core.run_lock import RunLock
from cse_cli.tracking import location, record
from cse_cli.tracking.logged_model import SavedModel
from cse_cli.tracking.reader import is_elsewhere
from cse_cli.tracking.repair import back_up_sometimes
from cse_cli.tracking.signals import defer_signals
from cse_cli.tracking.store import REFUSED, Store, open_store, reason
from cse_cli.tracking.system import sample_seconds, sampler
from cse_cli.tracking.tags import HEARTBEAT, HOST, INFINITE, PARENT, PID, PROCESS_STARTED
from cse_cli.tracking.tracker import Status, Tracker
from cse_cli.tracking.unsent import Change, DatasetRead, NotTakenError, Unsent, is_refusal, missing, sync
from registry.errors import CseError, TrackingError, UnknownNameError

SEND_SECONDS = 2.0
HEARTBEAT_SECONDS = 60.0
RETRY_SECONDS = 30.0
_LONGEST_NAME = 250
_LONGEST_PARAM = 6000


class StoreThread:
    """Makes a run's calls to its store, one after the other, and between them one at regular times.

    Signals are handled in the main thread, so none breaks into a call; and training does not wait for a slow server.
    `SimpleQueue` rather than `concurrent.futures`: an exception from a signal handler cannot leave its lock taken.

    Args:
        often: Called every so many seconds.
        seconds: None never.
    """

    def __init__(self, often: Callable[[], None], seconds: float | None) -> None:
        self._often, self._seconds = often, seconds
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._error: Exception | None = None
        self._due = time.monotonic() + (seconds or 0.0)
        Thread(target=self._work, name="tracking", daemon=True).start()

    def submit(self, call: Callable[[], None]) -> None:
        """Have the call made; what it raises, the next `run` raises."""
        self._calls.put(call)

    def run(self, call: Callable[[], None]) -> None:
        """Have the call made after those before it, and wait for it."""
        done: SimpleQueue[None] = SimpleQueue()
        self._calls.put(call)
        self._calls.put(lambda: done.put(None))
        done.get()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End the thread after the calls it has been given."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception as error:
                self._error = self._error or error

    def _next(self) -> Callable[[], None] | None:
        if self._seconds is None:
            return self._calls.get()
        try:
            return self._calls.get(timeout=max(0.0, self._due - time.monotonic()))
        except Empty:
            self._due = time.monotonic() + self._seconds
            return self._often


class MlflowTracker(Tracker):
    """A run in an MLflow store.

    Methods whose name begins with `_` run in the store's thread.

    Args:
        store: Where it is.
        run_id: Which one.
        resumed: Whether it may already have points of the steps to come.
        began: When, in milliseconds: what the steps of system metrics count from.
        lock: Of the run, which is held until it is closed.
    """

    def __init__(
        self, store: Store, run_id: str, resumed: bool = False, began: int | None = None, lock: RunLock | None = None
    ) -> None:
        self.run_id = run_id
        self._client = store.client
        self._uri = store.uri
        self._lock = lock or RunLock(run_id)
        self._began = began or _milliseconds()
        self._unsent = Unsent(run_id)
        self._points: SimpleQueue[Metric] = SimpleQueue()
        self._known: dict[str, set[int]] | None = {} if resumed else None
        self._infinite: set[str] = set()
        self._sent_at = self._beaten_at = time.monotonic()
        self._retry_at = 0.0
        self._refused = False
        self._finished = False
        if resumed:
            self._unsent.end_torn_line()
        self._sample: Callable[[], dict[str, float]] = dict
        self._thread = StoreThread(self._record_system, seconds := sample_seconds())
        if seconds is not None:
            self._thread.submit(self._begin_samples)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step: on disk at once, in the store at most `SEND_SECONDS` later if more follow."""
        now = _milliseconds()
        named = {legal_name(key): float(value) for key, value in values.items()}
        finite = {key: value for key, value in named.items() if not math.isinf(value)}
        # MLflow would store 1.8e308; the first step that went wrong says more.
        infinite = {key: value for key, value in named.items() if math.isinf(value) and key not in self._infinite}
        if infinite:
            self._infinite |= set(infinite)
            self.tags({f"{INFINITE}.{key}": f"{value} at step {step}" for key, value in infinite.items()})
        self._put(finite, step, now)
        if time.monotonic() - self._sent_at >= SEND_SECONDS:
            self._sent_at = time.monotonic()
            self._thread.submit(self._send_points)

    def _put(self, values: Mapping[str, float], step: int, now: int) -> None:
        self._unsent.append(values, step, now)
        for key, value in values.items():
            self._points.put(Metric(key, value, now, step))

    def tags(self, values: Mapping[str, str]) -> None:
        """Set or replace tags."""
        self._change(Change(tags=dict(values)))

    def text(self, name: str, text: str) -> None:
        """Keep a text as an artifact."""
        self._change(Change(texts={name: text}))

    def folder(self, path: Path, name: str) -> None:
        """Keep the files of a folder as artifacts."""
        self._change(Change(folders={name: path}))

    def model(self, path: Path, name: str, about: Mapping[str, str]) -> None:
        """Keep a model that lies in a folder, as the run's outcome: with its name, what it is, and the run's scores."""
        self.flush()
        self._change(Change(model=SavedModel(name=name, folder=path, about=dict(about))))

    def dataset(self, name: str, digest: str, context: str, source: str) -> None:
        """Record a data set the run read."""
        self._change(Change(datasets=(DatasetRead(name=name, digest=digest, context=context, source=source),)))

    def flush(self) -> None:
        """Wait until all metrics are written, or known to be refused."""
        self._thread.run(self._send_points)

    def finish(self, status: Status) -> None:
        """Write everything and close the run."""
        if self._finished:
            return
        self._retry_at = 0.0
        self.flush()
        self._change(Change(status=status, ended=_milliseconds()))
        self._finished = True
        if status == "FINISHED" and not self._unsent.exists():
            self._thread.run(_back_up)
        self._thread.stop()
        self._lock.release()
        if self._unsent.exists() and not self._refused:
            _warn(
                f"run {self.run_id[:8]} is complete in {self._unsent.folder.parent}; "
                "'cse runs sync' sends it to the store"
            )

    def _change(self, change: Change) -> None:
        with suppress(OSError):  # of a full disk the store tells, where it matters
            record.add(self.run_id, change)
        self._thread.run(lambda: self._write(change))

    def _begin_samples(self) -> None:
        self._sample = sampler()  # psutil counts for each thread since that has asked before

    def _record_system(self) -> None:
        now = _milliseconds()
        self._put(self._sample(), (now - self._began) // 1000, now)
        self._send_points()

    def _send_points(self) -> None:
        points = []
        while not self._points.empty():
            points.append(self._points.get())
        beat = time.monotonic() - self._beaten_at >= HEARTBEAT_SECONDS
        if beat:
            self._beaten_at = time.monotonic()
        if points or beat:
            self._write(Change(tags={HEARTBEAT: _now()} if beat else {}), points)

    def _write(self, change: Change, points: list[Metric] | None = None) -> None:
        """Send a change and points, or keep them: the points are in `metrics.jsonl`, which is sent with the change."""
        if self._unsent.exists() and not self._resent():
            self._unsent.keep(self._uri, change)
            return
        try:
            if points and self._known is not None:
                points = list(missing(self._client, self.run_id, points, self._known))
            if points:
                self._client.log_batch(self.run_id, metrics=points)
            change.send(self._client, self.run_id)
        except REFUSED as error:
            self._known = {}  # the store may have carried out what it did not answer
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._unsent.keep(self._uri, change)
            self._tell(error)

    def _resent(self) -> bool:
        """Send what is kept; return whether the store takes the records that follow."""
        if time.monotonic() < self._retry_at:
            return False
        try:
            self._unsent.send(self._client)
        except REFUSED as error:
            if isinstance(error, NotTakenError):
                self._tell(error)
                if not error.run:  # all but what it refuses has been sent
                    self._known = {}
                    return True
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return False
        self._known = {}
        self._refused = False
        _warn("the tracking store answers again; everything kept has been sent")
        return True

    def _tell(self, error: BaseException) -> None:
        """Say what the store did not take: of what it refuses, once."""
        if not is_refusal(error):
            _warn(f"the tracking store does not answer ({reason(error)}); keeping records in {self._unsent.folder}")
        elif not self._refused:
            self._refused = True
            _warn(
                f"the tracking store refuses records of run {self.run_id[:8]} ({reason(error)}); they are kept in "
                f"{self._unsent.folder}: 'cse runs sync' tries again, 'cse runs sync --discard' gives them up"
            )


def start_run(
    name: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    run_id: str | None,
    parent: str | None,
    experiment: str | None,
) -> MlflowTracker:
    """Do what `cse_cli.tracking.start` says; a signal waits until the run is there to be closed."""
    with defer_signals() as waiting:
        store = open_store()
        sync(store)
        tags = {**tags, **_process(), **tags}  # MLflow shows them in this order
        try:
            if run_id is None:
                own = {**tags, **({PARENT: parent} if parent is not None else {})}
                run_id = _create(store, name, params, own, experiment)
                (lock := RunLock(run_id)).acquire()
                tracker = MlflowTracker(store, run_id, lock=lock)
            else:
                tracker = _reopen(store, run_id, name, tags)
            _begin_record(store, run_id)
        except REFUSED as error:
            raise TrackingError(
                f"the tracking store {without_password(store.uri)} did not take the run: {reason(error)}",
                "run 'cse doctor' to see what it says, or unset MLFLOW_TRACKING_URI to record on this machine",
            ) from error
        if waiting:
            tracker.finish("KILLED")
    return tracker


def _create(store: Store, name: str, params: Mapping[str, str], tags: Mapping[str, str], experiment: str | None) -> str:
    standard = {"mlflow.user": _user(), "mlflow.source.name": "cse", "mlflow.source.type": "LOCAL"}
    place = _experiment_of(store.client, tags.get(PARENT)) or store.experiment(experiment or location.experiment())
    run = store.client.create_run(place, tags={**standard, **tags}, run_name=name)
    run_id = str(run.info.run_id)
    values = [Param(legal_name(key), _cut(value)) for key, value in params.items()]
    if values:
        store.client.log_batch(run_id, params=values)
    return run_id


def _experiment_of(client: MlflowClient, parent: str | None) -> str | None:
    """Return where a run lies, since MLflow shows one below another of the same experiment only; None in no store."""
    if parent is None:
        return None
    try:
        return str(client.get_run(parent).info.experiment_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # else another machine's store has it
            raise
        return None


def _reopen(store: Store, run_id: str, name: str, tags: Mapping[str, str]) -> MlflowTracker:
    """Set a run RUNNING again."""
    try:
        run = store.client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise UnknownNameError(f"there is no run {run_id!r} in this store", "'cse runs ls' shows the runs") from error
    lock = _lock(run)
    try:
        store.client.update_run(run_id, status="RUNNING", name=name or None)
        Change(tags=dict(tags)).send(store.client, run_id)
    except BaseException:
        lock.release()
        raise
    return MlflowTracker(store, run_id, resumed=True, began=int(run.info.start_time), lock=lock)


def _lock(run: Run) -> RunLock:
    """Return the lock of a run, held.

    Raises:
        CseError: Another process is at it.
    """
    run_id, tags = run.info.run_id, run.data.tags
    lock = RunLock(run_id)
    if is_elsewhere(run) or not lock.acquire():
        raise CseError(
            f"run {run_id[:8]} is still going on: process {tags.get(PID, '?')} on {tags.get(HOST, '?')}",
            f"wait for it, or end it: `cse runs stop {run_id[:8]}`",
        )
    return lock


def _begin_record(store: Store, run_id: str) -> None:
    """Keep in the run's folder what the store has of it, and what the folder knows since an earlier beginning."""
    run, before = store.client.get_run(run_id), record.read(run_id)
    begun = record.RunRecord(
        store=without_password(location.kept(store.uri)),
        experiment=store.client.get_experiment(run.info.experiment_id).name,
        name=run.info.run_name,
        started=run.info.start_time,
        params=run.data.params,
        change=(Change() if before is None else before.change.model_copy(update={"status": None, "ended": None})).then(
            Change(tags=run.data.tags)
        ),
    )
    begun.write(run_id)


def _process() -> dict[str, str]:
    """Return what tells later whether the run's process still lives; a process id alone may be another's by then."""
    return {
        HOST: socket.gethostname(),
        PID: str(os.getpid()),
        PROCESS_STARTED: f"{psutil.Process().create_time():.2f}",
        HEARTBEAT: _now(),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user id without a name


def legal_name(name: str) -> str:
    """Return the nearest name MLflow takes for a metric or param: ``p@5`` → ``p_at_5``, ``loss[0]`` → ``loss.0``."""
    name = re.sub(r"\[([^\]]*)\]", r".\1", name.replace("@", "_at_"))
    name = re.sub(r"[^\w\-. :/]", "_", name)
    name = posixpath.normpath("/" + name).strip("/")
    return name[:_LONGEST_NAME].rstrip("/.") or "_"


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_PARAM else value[: _LONGEST_PARAM - 1] + "…"


def _back_up() -> None:
    with suppress(OSError, sqlite3.Error, TrackingError):  # a copy that cannot be made now is made after the next run
        back_up_sometimes()


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _warn(message: str) -> None:
    sys.stderr.write(f"warning: {message}\n")
