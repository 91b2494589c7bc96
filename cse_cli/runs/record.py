"""The record of one run: a directory with its description and its events.

In `runs/<id>/`:

* `run.toml`: description of the run, written once
* `recipe.toml`: the resolved recipe, a valid argument of `cse run`
* `events.jsonl`: events, append only (`cse_cli.runs.events`)
* `result.json`: scores of a finished run, without what `run.toml` has
* `environment.json`, `series/`, `figures/`, `model/`, `checkpoint*.pt`, `mirrors/`
* `log.txt`: output of the process of the run, if it was not the process of the command
* `lock`, `claim`: locks of the process that executes the run, and of the one that started it
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cse_cli.core.identity import Identity
from cse_cli.core.paths import runs
from cse_cli.runs.events import End, EventLog, Listener, Pruned, read_history
from cse_cli.runs.lock import CLAIM, LOCK, FileLock, is_held
from registry.errors import CseError, MissingError, StopRequested
from registry.machinery import plugins
from registry.machinery.validation import describe
from registry.paths import make_folder, write_atomically

ABOUT = "run.toml"
RECIPE = "recipe.toml"
RESULT = "result.json"
LOG = "log.txt"
ENVIRONMENT = "environment.json"
STOP = "stop"
"""Name of the file that asks the run to end: as pruned for the reason in it, or as stopped without one."""
SEEN = "seen"
"""Name of the file with the last step whose dev score the search has seen."""
PROGRESS_SECONDS = 2.0
"""Shortest time between two records of progress."""
LOOK_SECONDS = 1.0
"""Time between two checks for a request to stop."""
_POLL_SECONDS = 0.02
MODEL = "model"
"""Name of the directory of the selected model."""


class About(BaseModel):
    """Contents of `run.toml`. The record of a search has neither recipe nor seed, precision and identity.

    Args:
        name: Display name. It does not have to be unique.
        recipe: Name or path by which the recipe was requested.
        source: Absolute path of the recipe's file.
        group: Group of related runs: the experiment in MLflow.
        parent: ID of the parent run, such as the record of a search.
        study: Cell of a study that the run belongs to.
        search: Name of the search if the run is a trial. A trial is not a result of its recipe.
        trial: Number of the trial that created the run.
        confirms: Name of the search whose best values this run verifies.
        scores_again: ID of the finished run whose model this run scores without training, because only test data have
            changed.
        summary: "tuning" or "seeds" for a record that summarizes others and has no result.
        changes: Changes by `--set` and `--unset`, such as "train.steps=10" or "no queue".
        tags: Tags of the user (`--tag`).
        paper: Reported row that the recipe reproduces: "paper/table/row".
        test_selected: Whether a test split selects the state.
        limited: Whether `evaluate.limit` reduces the evaluation data, so that the scores are not comparable.
        precision: Precision of the run, in which it resumes.
        commits: Repository on the Hub → commit that the run uses.
        git: Commit of the recipe's repository. Empty if it is not in one.
        pulled: Source of an imported record, such as "archive paper.zip", otherwise empty.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: int = 1
    run_id: str = Field(default_factory=lambda: uuid4().hex)
    name: str
    recipe: str = ""
    source: str = ""
    seed: int | None = None
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))
    group: str
    parent: str = ""
    study: str = ""
    search: str = ""
    trial: int | None = None
    confirms: str = ""
    scores_again: str = ""
    summary: str = ""
    changes: tuple[str, ...] = ()
    tags: dict[str, str] = Field(default_factory=dict)
    note: str = ""
    method: str = ""
    encoder: str = ""
    data: str = ""
    paper: str = ""
    test_selected: bool = False
    limited: bool = False
    precision: str = ""
    commits: dict[str, str] = Field(default_factory=dict)
    git: str = ""
    plugins: tuple[str, ...] = ()
    identity: Identity | None = None
    pulled: str = ""

    @property
    def path(self) -> Path:
        """Directory of the run."""
        return folder_of(self.run_id)

    @property
    def short(self) -> str:
        """First characters of the ID, for lists."""
        return self.run_id[:8]

    @property
    def experiment(self) -> str:
        """ID of the experiment. Empty for the record of a search."""
        return "" if self.identity is None else self.identity.experiment

    @property
    def is_trial(self) -> bool:
        """Whether the run belongs to a trial of a search."""
        return self.trial is not None

    @property
    def is_result(self) -> bool:
        """Whether the finished run is a result of its recipe. Trials and summaries are not."""
        return not self.search and not self.summary

    def to_toml(self) -> str:
        """Return the contents of `run.toml`."""
        document = self.model_dump(exclude_none=True)
        return tomli_w.dumps({key: value for key, value in document.items() if value != ""})

    @classmethod
    def of_toml(cls, text: str) -> Self:
        """Parse the contents of `run.toml`."""
        try:
            return cls(**tomllib.loads(text))
        except ValidationError as error:
            raise ValueError(describe(error)) from error

    def write(self, resolved: Mapping[str, Any] | None = None) -> None:
        """Create the directory with `run.toml` and the resolved recipe atomically."""
        draft = self.path.with_name(f".{self.run_id}.{os.getpid()}")
        make_folder(draft)
        try:
            if resolved is not None:
                write_atomically(draft / RECIPE, tomli_w.dumps(resolved))
            write_atomically(draft / ABOUT, self.to_toml())
            draft.rename(self.path)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def folder_of(run_id: str) -> Path:
    """Return the directory of a run."""
    return runs() / run_id


def read_about(run_id: str) -> About:
    """Return the contents of `run.toml`."""
    file = folder_of(run_id) / ABOUT
    try:
        about = About.of_toml(file.read_text(encoding="utf-8"))
        if about.run_id != run_id:  # the directory was copied
            raise ValueError(f"it describes run {about.run_id}")
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    return about


def read_recipe(run_id: str) -> dict[str, Any]:
    """Return the resolved recipe of a run."""
    file = folder_of(run_id) / RECIPE
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, why: Exception) -> CseError:
    return CseError(
        f"{file} is missing, damaged or from another version of cse: {why}",
        f"restore it from a backup, or delete {file.parent} and run the recipe again",
        code="runs.damaged_record",
    )


class RunRecord:
    """The run that this process executes: writer of its events and files.

    It holds the lock of the run. Without a lock, nothing is written: in the other processes of the run, and in training
    outside a run. The listener receives every event, unless another process reads them. After each dev score of a
    trial, its search decides whether it continues.
    """

    def __init__(
        self, run_id: str, lock: FileLock | None, listener: Listener | None = None, *, is_trial: bool = False
    ) -> None:
        self.run_id, self.path, self.is_trial = run_id, folder_of(run_id), is_trial
        self._lock = lock
        self._log = None if lock is None else EventLog(self.path)
        self._listener = listener
        self._progress_at, self._looked_at = time.monotonic(), 0.0

    def event(self, kind: str, **data: Any) -> None:
        """Record an event, and pass it to the listener."""
        if self._log is not None:
            self._log.append(kind, **data)
        if self._listener is not None:
            self._listener(kind, data)

    def started(self, step: int = 0, steps: int = 0, **data: Any) -> None:
        """Record that the run starts, or resumes after `step` of `steps` steps."""
        self._delete_requests()
        data = {**data, "step": step, "steps": steps}
        if self._log is not None:
            command = shlex.join(["cse", *sys.argv[1:]])
            self._log.append("started", host=socket.gethostname(), pid=os.getpid(), command=command, **data)
        if self._listener is not None:
            self._listener("started", data)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step."""
        if values:
            self.event("metrics", step=step, values={key: float(value) for key, value in values.items()})

    def progress(self, what: str, done: float = 0, total: float | None = 0) -> None:
        """Show the progress of slow work, of which `total` may be unknown, and record it if the last record is old."""
        if self._log is not None and time.monotonic() - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = time.monotonic()
            self._log.append("progress", what=what, done=done, total=total)
        if self._listener is not None:
            self._listener("progress", {"what": what, "done": done, "total": total})

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Record the scores of the selecting evaluator at a step. A search may then end a trial (`Pruned`)."""
        self.event("evaluated", step=step, scores=dict(scores), best=best)
        if self._log is None or not self.is_trial:
            return
        while self._listener is None and not (self.path / STOP).exists():
            with suppress(FileNotFoundError, ValueError):  # the search has not written it yet
                if int((self.path / SEEN).read_text(encoding="utf-8")) >= step:
                    break
            time.sleep(_POLL_SECONDS)
        self._stop_if_requested()

    def stop_if_requested(self) -> None:
        """End the run between two steps after `cse runs stop`. Its file is looked for once a second."""
        if self._log is not None and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._stop_if_requested()

    def _stop_if_requested(self) -> None:
        with suppress(FileNotFoundError):
            if reason := (self.path / STOP).read_text(encoding="utf-8"):
                raise Pruned(reason)
            raise stop_requested(self.run_id)

    def checkpoint(self, step: int) -> None:
        """Record that the checkpoint of a step is on the disk."""
        self.event("checkpoint", step=step)
        self.sync()

    def file(self, name: str, content: str | None = None) -> None:
        """Record that a file or directory belongs to the record. Write `content` to it first."""
        if self._log is not None and content is not None:
            write_atomically(self.path / name, content)
        self.event("file", name=name)

    def sync(self) -> None:
        """Wait until all events are on the disk."""
        if self._log is not None:
            self._log.sync()

    def end(self, kind: End, reason: str = "", **error: str | None) -> None:
        """Record how the run ended, and release its lock. Later calls do nothing.

        A finished or pruned run has nothing to resume, so its checkpoints are deleted.
        """
        if self._log is None:
            return
        self.event(kind, reason=reason, **error)
        self.sync()
        if kind in ("finished", "pruned"):
            delete_checkpoints(self.run_id)
        self._delete_requests()
        self.close()

    def _delete_requests(self) -> None:
        for name in (STOP, SEEN):
            (self.path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock without recording an end."""
        if self._log is not None and self._lock is not None:
            self._log.close()
            self._log = None
            self._lock.release()


def request_end(run_id: str, reason: str = "") -> None:
    """Ask a run to stop, or with a reason to end as pruned."""
    (folder_of(run_id) / STOP).write_text(reason, encoding="utf-8")


def stop_requested(run_id: str) -> StopRequested:
    """Return the error of a run that `cse runs stop` ended."""
    message, action = f"run {run_id[:8]} was stopped by `cse runs stop`", f"resume it: cse run --resume {run_id[:8]}"
    return StopRequested(message, action, code="runs.stopped")


def answer(run_id: str, step: int) -> None:
    """Let the run of a trial continue, which waits after a dev score."""
    (folder_of(run_id) / SEEN).write_text(str(step), encoding="utf-8")


def is_busy(run_id: str) -> bool | None:
    """Return whether a process executes a run or is about to, or None if the file system has no locks."""
    held = is_held(folder_of(run_id) / LOCK), is_held(folder_of(run_id) / CLAIM)
    return True if True in held else None if None in held else False


def log_of(run_id: str) -> Path:
    """Return the file with the output of the process of a run."""
    return folder_of(run_id) / LOG


def delete_checkpoints(run_id: str) -> None:
    """Delete the checkpoints of a run that will not be resumed."""
    for pattern in ("*.pt", "*.partial"):
        for file in folder_of(run_id).glob(pattern):
            file.unlink(missing_ok=True)


def last_end(run_id: str) -> str | None:
    """Return how a run ended, one of `ENDS`, or None if it runs or its process was killed."""
    end = read_history(folder_of(run_id), without=("metrics", "system")).end
    return None if end is None else end.kind


def model_of_run(run: str) -> str | None:
    """Return the model directory of the run with this ID prefix, or None if the run or model does not exist.

    Plug-in files of the run are named, because the model may need them. A run that exists without its model, for
    example because only its record was imported, is an error.
    """
    found = list(runs().glob(f"{run}*")) if run.isalnum() else []
    with_model = [folder for folder in found if (folder / MODEL).is_dir()]
    if len(run) >= 8 and (without := [folder for folder in found if folder not in with_model]):
        message = f"run {run} has no saved model on this machine"
        raise MissingError(message, f"train it again: cse run {without[0] / RECIPE} --again", code="runs.no_model")
    if len(with_model) != 1:
        return None
    about = read_about(with_model[0].name)
    for plugin in () if about.pulled else about.plugins:
        if Path(plugin).is_file():
            plugins.add(plugin)
    return str(with_model[0] / MODEL)
