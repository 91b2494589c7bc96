"""Number of threads of a process, and what OpenMP and oneDNN keep. Torch is imported only in functions."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
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
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""Number of kernels, one for each shape, that oneDNN keeps. Its default is 1,024, and 64 are enough (docs/fast.md)."""
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Settings, read when torch is loaded, with which x86-64 processors with AVX2 compute the same bits."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def limit_libraries(environment: MutableMapping[str, str]) -> None:
    """Limit how long OpenMP's threads keep a core without work, and oneDNN's memory, unless the user set them.

    Both read the variables when torch is imported. By default, OpenMP's threads occupy their cores for milliseconds, in
    which no other process and no other thread of this process can use them.
    """
    if not any(name in environment for name in WAITING_VARIABLES):
        environment.update(WAITING)
    environment.update({name: value for name, value in KERNELS.items() if name not in environment})


def is_portable() -> bool:
    """Return whether this process has the settings of `PORTABLE`."""
    return PORTABLE.items() <= os.environ.items()


def worker_environment(processes: int, device: str) -> dict[str, str]:
    """Return the environment of one of several processes. On a CPU, each gets its share of the usable cores.

    A number of threads that the user set does not change.
    """
    from registry.accelerators import accelerator

    own = dict(os.environ)
    limit_libraries(own)
    given = own.get(THREADS_VARIABLE) and _SHARE not in own
    if not given and (device == "cpu" or accelerator() is None):
        own[THREADS_VARIABLE] = own[_SHARE] = str(max(1, usable_threads() // processes))
    return own


def limit_torch_threads() -> int:
    """Limit torch to the usable threads, unless the user set their number. Return the number of threads."""
    import torch

    if thread_setting() is None and usable_threads() < torch.get_num_threads():
        torch.set_num_threads(usable_threads())
    return torch.get_num_threads()


def resume_torch_threads(recorded: int) -> int:
    """Give torch the recorded threads of a run, unless the user set their number. Return the number of threads.

    The number of threads changes the order of sums, and so the last digits of weights.
    """
    import torch

    if thread_setting() is None:
        torch.set_num_threads(min(recorded, usable_cores()))
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


def usable_threads() -> int:
    """Return the number of threads of this process: the share of a worker, or one for each usable core."""
    return int(os.environ.get(_SHARE, usable_cores()))


def usable_cores() -> int:
    """Return the number of cores that this process may use in parallel, from its affinity and its quota."""
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
