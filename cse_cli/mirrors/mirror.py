"""The interface of mirrors: trackers that receive the events of runs. `CSE_MIRRORS` selects them by name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import ClassVar

import psutil
from pydantic import BaseModel, ValidationError

from cse_cli.runs.events import Event
from cse_cli.runs.record import About, folder_of
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import write_atomically

GROUP = "cse.mirrors"
"""Entry point group of mirrors in other packages."""
VARIABLE = "CSE_MIRRORS"
_BUILT_IN = {"mlflow": "cse_cli.mirrors.mlflow:MlflowMirror", "wandb": "cse_cli.mirrors.wandb:WandbMirror"}


class Mirror(ABC):
    """One run in a tracker. All methods run in a thread, never in the main thread.

    After an exception, `cse` opens a new mirror later and sends the run again from its first event. So sending an event
    twice must have the same effect as sending it once.

    Args:
        about: Contents of `run.toml`.
        uri: Result of `connect`.
    """

    name: ClassVar[str]

    def __init__(self, about: About, uri: str) -> None:
        self.about, self.uri = about, uri

    @classmethod
    @abstractmethod
    def connect(cls) -> str:
        """Check that the tracker responds, and return its address without a password."""

    @abstractmethod
    def open(self, parent: str) -> str:
        """Create the run in the tracker, or open it if it exists.

        Args:
            parent: ID of the parent run in the tracker, or empty.

        Returns:
            ID in the tracker, or an empty string if a user deleted the run there.
        """

    @abstractmethod
    def send(self, events: Sequence[Event]) -> None:
        """Send events in their order. Each step of a metric occurs once, even if the run was resumed."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of `open`."""


class State(BaseModel):
    """Place of a run in a mirror: `mirrors/<name>.json` in the directory of the run.

    Args:
        uri: Address of the tracker.
        id: ID of the run in the tracker.
        size: Size of `events.jsonl` if the tracker has the whole run, otherwise 0.
    """

    uri: str
    id: str
    size: int = 0

    @classmethod
    def read(cls, run_id: str, name: str) -> State | None:
        """Return the state of a run, or None if it was never sent or the file is damaged."""
        try:
            return cls.model_validate_json(state_file(run_id, name).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, run_id: str, name: str) -> None:
        """Write the state of a run."""
        write_atomically(state_file(run_id, name), self.model_dump_json())


def state_file(run_id: str, name: str) -> Path:
    """Return the file with the state of a run in a mirror."""
    return folder_of(run_id) / "mirrors" / f"{name}.json"


def configured() -> list[str]:
    """Return the names in `CSE_MIRRORS`, such as "mlflow,wandb". The default is "mlflow"."""
    names = [name.strip() for name in os.environ.get(VARIABLE, "mlflow").split(",")]
    selected = [name for name in dict.fromkeys(names) if name not in ("", "none")]
    for name in selected:
        _entry(name)
    return selected


def load(name: str) -> type[Mirror]:
    """Return the class of a mirror."""
    try:
        return _entry(name).load()  # type: ignore[no-any-return]
    except ImportError as error:
        todo = f"install its package, or remove '{name}' from {VARIABLE}"
        raise CseError(f"cannot import the mirror '{name}': {error}", todo, code="mirrors.not_installed") from error


def _entry(name: str) -> EntryPoint:
    known = {point.name: point for point in entry_points(group=GROUP)}
    known |= {each: EntryPoint(each, value, GROUP) for each, value in _BUILT_IN.items()}
    if name not in known:
        raise UnknownNameError(
            f"{VARIABLE}: the mirror '{name}' does not exist.{suggestion(name, known)}",
            f"use one or more of {', '.join(sorted(known))}, or none",
            code="mirrors.unknown_mirror",
        )
    return known[name]


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run. The most important ones are first."""
    tags = {name: getattr(about, name) for name in ("recipe", "method", "encoder", "data", "seed")}
    more = ("run_id", "experiment", "study", "search", "trial", "confirms", "summary", "paper")
    tags |= {f"cse.{name}": getattr(about, name) for name in more}
    tags |= {f"cse.{name}": "true" if getattr(about, name) else "" for name in ("test_selected", "limited")}
    tags |= {"cse.set": "; ".join(about.changes), "mlflow.note.content": about.note}
    tags |= {"mlflow.source.name": "cse", "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": about.git}
    tags["mlflow.user"] = psutil.Process().username()
    return {key: str(value) for key, value in tags.items() if value not in ("", None)} | about.tags
