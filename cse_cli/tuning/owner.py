"""Ownership of trials by the processes that work on a search.

Each process locks its own file and writes the name of that file into its trials. When a process ends, also by SIGKILL,
the operating system releases the lock, and another process takes over its trials. ADR 0002 explains why Optuna's
heartbeats do not replace this.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal, Self
from uuid import uuid4

from optuna import Study, Trial
from optuna.trial import FrozenTrial, TrialState

from cse_cli.runs.lock import FileLock, is_held
from cse_cli.tuning.storage import Address

OWNER: Final = "owner"
"""User attribute of a trial: name of the lock file of its process."""
_SIGNING_SECONDS = 60.0
"""Longer than a process takes to sign a trial that it has created."""

Ownership = Literal["held", "left", "elsewhere"]
"""Whether the process of a trial is running. "elsewhere": unknown, because its lock file is on another machine."""


def ownership(trial: FrozenTrial, place: Address, name: str) -> Ownership:
    """Return whether the process of a running trial is running."""
    owner = trial.user_attrs.get(OWNER)
    if owner is None:  # its process was killed before it signed the trial, or is about to sign it
        begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
        return "left" if place.own or time.time() - begun > _SIGNING_SECONDS else "elsewhere"
    file = place.locks(name) / owner
    if file.exists():
        return "held" if is_held(file) else "left"
    return "left" if place.own else "elsewhere"


class Owner:
    """Context manager that holds this process's lock file."""

    def __init__(self, study: Study, place: Address) -> None:
        self._study, self._place, self._name = study, place, uuid4().hex
        self._file = place.locks(study.study_name) / self._name
        self._lock = FileLock(self._file)
        self.choosing = choosing(place, study.study_name)

    def __enter__(self) -> Self:
        with self.choosing:
            self._delete_unused()
            self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._lock.release()
        if kind is None:  # otherwise the storage may not respond
            with self.choosing:
                self._delete_unused()

    def sign(self, trial: Trial) -> None:
        """Make this process the owner of a trial. The caller holds `choosing`."""
        trial.set_user_attr(OWNER, self._name)

    def of(self, trial: FrozenTrial) -> Ownership:
        """Return whether the process of a running trial is running."""
        return ownership(trial, self._place, self._study.study_name)

    def _delete_unused(self) -> None:
        """Delete the lock files of processes that have ended and left no trial."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        used = {trial.user_attrs.get(OWNER) for trial in running}
        for file in self._file.parent.glob("[0-9a-f]*"):
            if file.name not in used and is_held(file) is False:
                file.unlink(missing_ok=True)


def choosing(place: Address, name: str) -> FileLock:
    """Return the lock that a process holds while it creates a study, or chooses or takes over a trial."""
    return FileLock(place.locks(name) / "lock")


def is_searched(trials: Sequence[FrozenTrial], place: Address, name: str) -> bool:
    """Return whether a running process owns one of these trials."""
    running = [trial for trial in trials if trial.state == TrialState.RUNNING]
    return any(ownership(trial, place, name) == "held" for trial in running)
