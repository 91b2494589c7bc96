"""Sends to a mirror what it lacks of all runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from cse_cli.core.paths import runs
from cse_cli.mirrors.mirror import Mirror, State, Target, state_file
from cse_cli.mirrors.send import Sender
from cse_cli.runs.events import FILE, read_events
from cse_cli.runs.lock import is_held
from cse_cli.runs.record import About, folder_of, lock_of, read_about
from registry.errors import CseError


@dataclass(frozen=True)
class Scope:
    """Which runs a synchronization sends, besides those of which the target has a part.

    Args:
        unsent: Runs that were never sent.
        again: Runs that were deleted in the tracker, anew.
        rebuild: All runs, anew.
    """

    unsent: bool = True
    again: bool = False
    rebuild: bool = False


@dataclass(frozen=True)
class Sent:
    """What became of one run in a synchronization.

    Args:
        about: What the run is.
        events: Number of events that the tracker received now.
        error: Why it did not receive all, or None.
    """

    about: About
    events: int
    error: Exception | None = None


def sync(kind: type[Mirror], scope: Scope, allow: Callable[[float], None] = lambda _: None) -> Iterator[Sent]:
    """Send what a mirror lacks, run by run, oldest first. A run that another process sends is left to it.

    Args:
        kind: The mirror.
        scope: Which runs.
        allow: Called before each step with the seconds that it may take.
    """
    if scope.rebuild:
        kind.discard()
    target = kind.connect()
    for about in behind(kind.name, target, scope):
        sender = Sender(about, kind, allow, target)
        if sender.begin():
            try:
                sent = _send(sender, about, kind, scope)
            finally:
                sender.end()
            yield sent


def _send(sender: Sender, about: About, kind: type[Mirror], scope: Scope) -> Sent:
    state = State.read(about.run_id, kind.name)
    if scope.rebuild or (state is not None and state.gone):
        state_file(about.run_id, kind.name).unlink(missing_ok=True)
    try:
        return Sent(about, sender.send())
    except Exception as error:  # the other runs are sent
        return Sent(about, 0, error)


def behind(name: str, target: Target, scope: Scope) -> list[About]:
    """Return the runs to send, oldest first. Runs that were pulled from a tracker are never sent."""
    found = []
    for run_id in _run_ids():
        if scope.rebuild or _is_behind(run_id, State.read(run_id, name), target, scope):
            with suppress(CseError):  # readers of the record name what is damaged
                found.append(read_about(run_id))
    return sorted((about for about in found if "://" not in about.pulled), key=lambda about: about.created)


def waiting_elsewhere(name: str, target: Target) -> dict[str, int]:
    """Return the addresses of other targets that lack something, each with the number of runs."""
    found: dict[str, int] = {}
    for run_id in _run_ids():
        state = State.read(run_id, name)
        if state is not None and state.uri != target.uri and not state.gone and _lacks_events(run_id, state):
            found[state.uri] = found.get(state.uri, 0) + 1
    return found


def _is_behind(run_id: str, state: State | None, target: Target, scope: Scope) -> bool:
    if state is None:
        return scope.unsent or target.complete
    if state.uri != target.uri:
        return False
    if state.gone:
        return scope.again
    return state.database != target.database or _lacks_events(run_id, state)


def _lacks_events(run_id: str, state: State) -> bool:
    if not state.ended and is_held(lock_of(run_id)) is False:
        return True
    with suppress(OSError):
        if (folder_of(run_id) / FILE).stat().st_size > state.offset:
            return next(read_events(folder_of(run_id), state.offset), None) is not None
    return False


def _run_ids() -> list[str]:
    with suppress(OSError):
        return [entry.name for entry in os.scandir(runs()) if not entry.name.startswith(".") and entry.is_dir()]
    return []
