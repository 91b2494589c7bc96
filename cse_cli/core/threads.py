"""Number of threads of a process, and how OpenMP's threads wait for each other. Torch is imported only in functions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

THREADS_VARIABLE = "OMP_NUM_THREADS"
THREAD_VARIABLES = (THREADS_VARIABLE, "MKL_NUM_THREADS")
"""Variables with which the user sets the number of threads."""
_SHARE = "_CSE_THREADS"
"""Variable that marks a number in `THREADS_VARIABLE` as the share of a worker, which the user did not set."""
WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""Time that a thread without work keeps its core: loops of GNU's OpenMP, milliseconds of LLVM's and Intel's."""
WAITING_VARIABLES = ("OMP_WAIT_POLICY", *WAITING)
"""Variables with which the user sets this time."""
_SAMPLE_SECONDS = 0.2
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def limit_waiting() -> None:
    """Limit the time that OpenMP's threads keep a core without work, unless the user set it.

    OpenMP reads the variables when torch is imported. By default, its threads occupy their cores for milliseconds, in
    which no other process and no other thread of this process can use them.
    """
    if not any(name in os.environ for name in WAITING_VARIABLES):
        os.environ.update(WAITING)


def waiting_setting() -> str:
    """Return the variables that set how OpenMP's threads wait, as NAME=value."""
    return ", ".join(f"{name}={os.environ[name]}" for name in WAITING_VARIABLES if name in os.environ)


class CoreUse:
    """Cores that this process and all others use, from the creation of the object or the last `read`."""

    def __init__(self) -> None:
        self._last = self._now()

    def read(self) -> tuple[float, float]:
        """Return the mean number of cores that this process used, and that all others used."""
        before, self._last = self._last, self._now()
        wall, own, everything = (now - then for now, then in zip(self._last, before, strict=True))
        return own / wall, max(0.0, everything - own) / wall

    @property
    def seconds(self) -> float:
        """Seconds since the last `read`."""
        return time.perf_counter() - self._last[0]

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), _busy_seconds()


def _busy_seconds() -> float:
    """Return the processor seconds of all processes on the schedulable cores, without those of lower priority."""
    import psutil

    niced = os.getpriority(os.PRIO_PROCESS, 0) > 0
    cores = psutil.cpu_times(percpu=True)
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    return sum(each.user + each.system + niced * each.nice for place, each in enumerate(cores) if place in own)


@cache
def busy_cores() -> float:
    """Return the number of cores that other processes use. It is measured once, so that all runs of a process agree."""
    use = CoreUse()
    time.sleep(_SAMPLE_SECONDS)
    return use.read()[1]


def worker_environment(processes: int, device: str) -> dict[str, str]:
    """Return the environment of one of several processes. On a CPU, each gets its share of the free cores.

    A number of threads that the user set does not change.
    """
    from registry.accelerators import accelerator

    own = dict(os.environ)
    given = own.get(THREADS_VARIABLE) and _SHARE not in own
    if not given and (device == "cpu" or accelerator() is None):
        own[THREADS_VARIABLE] = own[_SHARE] = str(max(1, free_threads() // processes))
    return own


def limit_torch_threads() -> int:
    """Limit torch to the free threads, unless the user set their number. Return the number of threads.

    More threads than free cores wait for each other at every operation.
    """
    import torch

    if thread_setting() is None and free_threads() < torch.get_num_threads():
        torch.set_num_threads(free_threads())
    return torch.get_num_threads()


def resume_torch_threads(recorded: int) -> int:
    """Give torch the recorded threads of a run, unless the user set their number. Return the number of threads.

    The number of threads changes the order of sums, and so the last digits of weights.
    """
    import torch

    if thread_setting() is None:
        torch.set_num_threads(min(recorded, usable_threads()))
    return torch.get_num_threads()


@contextmanager
def torch_threads_restored() -> Iterator[None]:
    """Restore the number of torch's threads at the end."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_threads() -> int:
    """Return the number of threads for a process that starts to compute.

    It is the share of a worker, or the usable threads that other processes leave free, at least 1.
    """
    if (share := os.environ.get(_SHARE)) is not None:
        return int(share)
    return max(1, min(usable_threads(), schedulable_cores() - round(busy_cores())))


def usable_threads() -> int:
    """Return the number of threads that can run in parallel, from the available cores and the quota."""
    limit = core_quota()
    return schedulable_cores() if limit is None else max(1, min(schedulable_cores(), int(limit)))


def schedulable_cores() -> int:
    """Return the number of cores that the scheduler may use for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_quota() -> float | None:
    """Return the CPU quota of the container in cores, or None without a limit. torch ignores it."""
    return min(_quotas(), default=None)


def thread_setting() -> str | None:
    """Return the variable with which the user set the number of threads as NAME=value, or None."""
    names = THREAD_VARIABLES[1:] if _SHARE in os.environ else THREAD_VARIABLES
    return next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), None)


def _quotas() -> Iterator[float]:
    """Yield the limits of this process's control group and its parents, for versions 2 and 1."""
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
            with suppress(ValueError):  # "max", or an empty file
                time, period = map(int, found)
                if time > 0 and period > 0:  # version 1 writes -1 without a limit
                    yield time / period


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
