"""The interface of mirrors: trackers that receive the events of runs. `CSE_MIRRORS` selects them by name."""

from __future__ import annotations

import getpass
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cse_cli.runs.events import Event
from cse_cli.runs.record import About, folder_of
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import write_atomically

GROUP = "cse.mirrors"
"""Entry point group of mirrors in other packages."""
VARIABLE = "CSE_MIRRORS"
_BUILT_IN = {"mlflow": "cse_cli.mirrors.mlflow:MlflowMirror", "wandb": "cse_cli.mirrors.wandb:WandbMirror"}


class RefusedError(Exception):
    """The tracker responds and will never accept this event, which is skipped."""


class GoneError(Exception):
    """The run was deleted in the tracker. No more events are sent until `cse runs sync --again`."""


@dataclass(frozen=True)
class Target:
    """Current destination of a mirror.

    Args:
        uri: Address without a password.
        database: ID of the database at the address, if a new database can replace it.
        complete: Whether the target receives runs that were never sent, because it is on this machine.
    """

    uri: str
    database: str = ""
    complete: bool = False


class Mirror(ABC):
    """One run in a tracker. All methods run in a thread, never in the main thread.

    A method raises `RefusedError` for an event that the tracker will never accept and `GoneError` if the run was
    deleted in the tracker. After any other exception, `cse` opens a new mirror later and sends the same events again,
    so sending an event twice must have the same effect as sending it once.

    Args:
        about: Contents of `run.toml`.
        target: Result of `connect`.
    """

    name: ClassVar[str]

    def __init__(self, about: About, target: Target) -> None:
        self.about = about
        self.target = target

    @classmethod
    @abstractmethod
    def connect(cls) -> Target:
        """Check that the tracker responds, and return the current destination."""

    @abstractmethod
    def open(self, run_id: str, parent: str) -> str:
        """Create the run in the tracker, or open it again, and return its ID in the tracker.

        Args:
            run_id: ID in the tracker. Empty for a run that was never sent.
            parent: ID of the parent run in the tracker, or empty.
        """

    @abstractmethod
    def send(self, events: Sequence[Event]) -> None:
        """Send events in their order. Each step of a metric occurs once, even if the run was resumed."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of `open`."""

    @classmethod  # noqa: B027 - optional
    def discard(cls) -> None:
        """Rename the data of a tracker on this machine: `cse runs sync --rebuild`."""


class State(BaseModel):
    """Progress of sending a run to a mirror: `mirrors/<name>.json` in the directory of the run.

    Args:
        uri: `Target.uri` that contains the run.
        database: `Target.database` that contains the run.
        id: ID of the run in the tracker.
        offset: Offset into `events.jsonl` behind the last event that was sent.
        ended: Whether the last event that was sent ended the run.
        gone: Reason for which the run is no longer sent, or empty.
    """

    model_config = ConfigDict(extra="ignore")

    uri: str
    database: str = ""
    id: str = ""
    offset: int = 0
    ended: bool = False
    gone: str = ""

    @classmethod
    def read(cls, run_id: str, name: str) -> State | None:
        """Return the state of a run, or None if it was never sent or the file is damaged."""
        try:
            return cls.model_validate_json(state_file(run_id, name).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, run_id: str, name: str) -> None:
        """Write the state of a run."""
        write_atomically(state_file(run_id, name), self.model_dump_json(exclude_defaults=True))

    def is_in(self, target: Target) -> bool:
        """Return whether the run is in this target."""
        return (self.uri, self.database) == (target.uri, target.database)


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
        raise CseError(
            f"cannot import the mirror '{name}': {error}",
            f"install its package, or remove '{name}' from {VARIABLE}",
            code="mirrors.not_installed",
        ) from error


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


RUN = "cse.run_id"
"""Tag with the ID of the run's record."""


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run. The most important ones are first."""
    seed = "" if about.seed is None else str(about.seed)
    tags = {
        "recipe": about.recipe,
        "method": about.method,
        "encoder": about.encoder,
        "data": about.data,
        "seed": seed,
        RUN: about.run_id,
        "cse.experiment": about.experiment,
        "cse.set": "; ".join(about.changes),
        "cse.study": about.study,
        "cse.search": about.search,
        "cse.trial": "" if about.trial is None else str(about.trial),
        "cse.confirms": about.confirms,
        "cse.summary": about.summary,
        "cse.paper": about.paper,
        "cse.test_selected": "true" if about.test_selected else "",
        "cse.limited": "true" if about.limited else "",
        "mlflow.note.content": about.note,
        "mlflow.source.name": "cse",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": about.git,
        "mlflow.user": _user(),
    }
    return {key: value for key, value in tags.items() if value} | about.tags


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # in a container, the user ID may have no name
