"""How many cores this process may compute on: fewer than the machine has, where a container or a scheduler says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""A number of threads set by hand; it stays."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def affinity() -> int:
    """Return the cores that this process may be scheduled on; torch knows of these."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota() -> float | None:
    """Return how many cores' time the container gets, None where it is not limited; torch knows nothing of this."""
    return min(_quotas(), default=None)


def allowed() -> int:
    """Return how many threads can compute at once without being held back: a part of a core is none."""
    limit = quota()
    return affinity() if limit is None else max(1, min(affinity(), int(limit)))


def settle() -> int:
    """Let torch use no more threads than `allowed`, unless their number was set by hand; return the number used.

    Threads beyond a container's quota wait for each other at every operation: all stand still until the next period.
    """
    import torch

    if chosen_by_hand() is None and allowed() < torch.get_num_threads():
        torch.set_num_threads(allowed())
    return torch.get_num_threads()


def chosen_by_hand() -> str | None:
    """Return the variable that sets the number of threads, as NAME=value; None where there is none."""
    return next((f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)), None)


def _quotas() -> Iterator[float]:
    """Yield the limits of this process's control group and of those above it, versions 2 and 1."""
    for line in _read(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        for folder in (Path(path), *Path(path).parents):
            if not controllers:
                found = _read(_GROUPS / folder.relative_to("/") / "cpu.max").split()
            elif "cpu" in controllers.split(","):
                own = _GROUPS / "cpu" / folder.relative_to("/")
                found = [_read(own / "cpu.cfs_quota_us").strip(), _read(own / "cpu.cfs_period_us").strip()]
            else:
                found = []
            with suppress(ValueError):
                time, period = map(int, found)  # "max", or nothing, is no number
                if time > 0 and period > 0:  # version 1 writes -1 for no limit
                    yield time / period


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
