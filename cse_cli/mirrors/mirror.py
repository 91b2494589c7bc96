"""What a mirror is: a tracker that receives the events of runs. `CSE_MIRRORS` selects the mirrors by name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
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
    """The tracker answers and will never accept this event. It is skipped."""


class GoneError(Exception):
    """The run was deleted in the tracker. Nothing more of it is sent until `cse runs sync --again`."""


@dataclass(frozen=True)
class Target:
    """Where a mirror sends runs now.

    Args:
        uri: Address without a password.
        database: ID of the database behind the address, if a new one can take its place.
        complete: Whether runs that were never sent are sent without a request, because the target is on this machine.
    """

    uri: str
    database: str = ""
    complete: bool = False


class Mirror(ABC):
    """One run in a tracker. All methods run in a thread, never in the main thread.

    A method raises `RefusedError` for an event that the tracker will never accept and `GoneError` if the run was
    deleted there. After any other exception a new mirror is opened later and receives the same events again, so
    sending an event twice must have the same effect as sending it once.

    Args:
        about: What the run is.
        target: What `connect` returned.
    """

    name: ClassVar[str]

    def __init__(self, about: About, target: Target) -> None:
        self.about = about
        self.target = target

    @classmethod
    @abstractmethod
    def connect(cls) -> Target:
        """Check that the tracker answers, and return where runs go now."""

    @abstractmethod
    def open(self, run_id: str, parent: str) -> str:
        """Create the run in the tracker, or open it again, and return its ID there.

        Args:
            run_id: ID in the tracker. Empty for a run that was never sent.
            parent: ID of the parent run in the tracker, or empty.
        """

    @abstractmethod
    def send(self, events: Sequence[Event]) -> None:
        """Send events in their order. A metric has each step once, also if the run was resumed."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release what `open` acquired."""

    @classmethod  # noqa: B027 - optional
    def discard(cls) -> None:
        """Put aside everything that was sent to a tracker on this machine: `cse runs sync --rebuild`."""


class State(BaseModel):
    """How much of a run a mirror has: `mirrors/<name>.json` in the directory of the run.

    Args:
        uri: `Target.uri` at which the run is.
        database: `Target.database` in which the run is.
        id: ID of the run there.
        offset: Offset into `events.jsonl` behind the last event that was sent.
        ended: Whether the last event that was sent ended the run.
        gone: Why the run is no longer mirrored, or empty.
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
    """Return the names in `CSE_MIRRORS`, such as "mlflow,wandb"; by default "mlflow".

    Raises:
        UnknownNameError: If there is no mirror of a name.
    """
    names = [name.strip() for name in os.environ.get(VARIABLE, "mlflow").split(",")]
    wanted = [name for name in dict.fromkeys(names) if name not in ("", "none")]
    for name in wanted:
        _entry(name)
    return wanted


def load(name: str) -> type[Mirror]:
    """Return the mirror of a name.

    Raises:
        CseError: If there is none, or if its package cannot be imported.
    """
    found = _entry(name)
    try:
        if not isinstance(found, str):
            return found.load()  # type: ignore[no-any-return]
        module, _, attribute = found.partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
    except ImportError as error:
        raise CseError(
            f"the mirror '{name}' cannot be imported: {error}",
            f"install its package, or leave '{name}' out of {VARIABLE}",
        ) from error


def _entry(name: str) -> str | EntryPoint:
    known: dict[str, str | EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    known |= _BUILT_IN
    if name not in known:
        raise UnknownNameError(
            f"{VARIABLE} names the mirror '{name}', which does not exist.{suggestion(name, known)}",
            f"use one or more of {', '.join(sorted(known))}, or none",
        )
    return known[name]
