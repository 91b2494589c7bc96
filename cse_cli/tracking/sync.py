"""Sends what runs kept on disk while their store was away."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from filelock import Timeout as LockTimeout

from cse_cli.tracking.buffer import Pending, waiting
from cse_cli.tracking.refusal import reason
from cse_cli.tracking.store import REFUSED, Store, open_store
from registry.errors import TrackingError


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
