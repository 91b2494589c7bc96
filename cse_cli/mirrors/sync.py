"""Send all runs that a mirror lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from cse_cli.mirrors.mirror import Mirror, State, Target, state_file
from cse_cli.mirrors.send import Sender
from cse_cli.runs.events import FILE, read_events
from cse_cli.runs.index import recorded_ids
from cse_cli.runs.lock import is_held
from cse_cli.runs.record import About, folder_of, lock_of, read_about
from registry.errors import CseError


def sync(
    kind: type[Mirror], *, unsent: bool = True, again: bool = False, rebuild: bool = False
) -> Iterator[tuple[About, Exception | None]]:
    """Send runs that a mirror lacks, oldest first, and yield each with the error that interrupted it, or None.

    A run that another process sends is skipped.

    Args:
        kind: The mirror.
        unsent: Whether to send runs that were never sent. A target on this machine always receives them.
        again: Whether to send runs that were deleted in the tracker.
        rebuild: Whether to send all runs from the start.
    """
    if rebuild:
        kind.discard()
    target = kind.connect()
    for about in _behind(kind.name, target, unsent=unsent, again=again, rebuild=rebuild):
        sender = Sender(about, kind, target)
        if not sender.begin():
            continue
        error: Exception | None = None
        try:
            state = State.read(about.run_id, kind.name)
            if rebuild or (state is not None and state.gone):
                state_file(about.run_id, kind.name).unlink(missing_ok=True)
            sender.send()
        except Exception as failed:  # the other runs are sent
            error = failed
        finally:
            sender.end()
        yield about, error


def _behind(name: str, target: Target, *, unsent: bool, again: bool, rebuild: bool) -> list[About]:
    # Runs that were pulled from a tracker are never sent.
    found = []
    for run_id in recorded_ids():
        state = State.read(run_id, name)
        if rebuild or (unsent or target.complete if state is None else _is_behind(run_id, state, target, again)):
            with suppress(CseError):  # `cse runs ls` reports damaged runs
                found.append(read_about(run_id))
    return sorted((about for about in found if "://" not in about.pulled), key=lambda about: about.created)


def waiting_elsewhere(name: str, target: Target) -> dict[str, int]:
    """Return the address of each other target that lacks events → number of runs."""
    found: Counter[str] = Counter()
    for run_id in recorded_ids():
        state = State.read(run_id, name)
        if state is not None and state.uri != target.uri and not state.gone and _lacks_events(run_id, state):
            found[state.uri] += 1
    return dict(found)


def _is_behind(run_id: str, state: State, target: Target, again: bool) -> bool:
    if state.uri != target.uri:
        return False
    if state.gone:
        return again
    return state.database != target.database or _lacks_events(run_id, state)


def _lacks_events(run_id: str, state: State) -> bool:
    if not state.ended and is_held(lock_of(run_id)) is False:
        return True
    with suppress(OSError):
        if (folder_of(run_id) / FILE).stat().st_size > state.offset:
            return next(read_events(folder_of(run_id), state.offset), None) is not None
    return False
