"""What a process computes on: device and precision, and how many cores it may use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from registry.distributed import world_size
from registry.errors import CseError

Precision = Literal["fp32", "bf16", "fp16"]


_CPU_ALLOCATOR = re.compile(r"DefaultCPUAllocator: .* tried to allocate (\d+) bytes")
_TOO_LARGE = re.compile(r"Storage size calculation overflowed with sizes=(\[[\d, ]+\])")
"""What torch says of more bytes than can be counted."""


def missing_memory(error: BaseException) -> str | None:
    """Return what an error says about memory that is not there; None for any other error.

    torch has a class of errors for the memory of GPUs alone.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return str(error) or "no memory is left"
    if not isinstance(error, RuntimeError):
        return None
    if beyond := _TOO_LARGE.search(str(error)):
        return f"no machine has the memory for a tensor of {beyond[1]} numbers"
    asked = _CPU_ALLOCATOR.search(str(error))
    return asked and f"this machine has no {int(asked[1]) / 1e9:,.1f} GB of memory, asked for at once"


@dataclass(frozen=True)
class Compute:
    """What one process computes on and in.

    Args:
        device: Of its tensors.
        precision: What the forward pass computes in; losses stay in fp32.
    """

    device: torch.device
    precision: Precision

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass."""
        if self.precision == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype)

    def describe(self) -> str:
        """Return the device's name as records keep it."""
        if self.device.type == "cuda":
            return f"{self.device} ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({torch.get_num_threads()} threads)"


def choose(device: str = "auto", precision: str = "auto") -> Compute:
    """Return the named device and a precision that works on it.

    Args:
        device: "auto" takes a CUDA device, else the CPU; or "cpu", "cuda", "cuda:1". The CUDA device is the first
            one, or, where several processes train together, this process's own.
        precision: "auto" is fp32 on CPU, bf16 on CUDA devices that have it, else fp32.

    Raises:
        CseError: No such device, or a precision that cannot work there; the message says why.
    """
    chosen = _device(device)
    on_gpu = chosen.type == "cuda"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        return Compute(chosen, "bf16" if has_bf16 else "fp32")
    if precision == "fp16" and not on_gpu:
        raise CseError(
            "train.precision: 'fp16' cannot train on a CPU: it has no scaled half-precision kernels",
            "use precision = 'auto' (fp32 here), or --device cuda on a machine that has one",
        )
    if precision == "bf16" and on_gpu and not has_bf16:
        raise CseError(
            f"train.precision: 'bf16' is not supported by {torch.cuda.get_device_name(chosen)}",
            "use precision = 'auto' or 'fp16'",
        )
    if precision not in ("fp32", "bf16", "fp16"):
        raise CseError(f"unknown precision '{precision}'", "use auto, fp32, bf16 or fp16")
    return Compute(chosen, precision)  # type: ignore[arg-type]


def _device(device: str) -> torch.device:
    if device == "auto":
        return _own_cuda() if torch.cuda.is_available() else torch.device("cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise CseError(f"--device: unknown device '{device}'", "use auto, cpu, cuda or cuda:N") from error
    if chosen.type not in ("cpu", "cuda"):
        raise CseError(f"--device: '{device}' is not supported", "use auto, cpu, cuda or cuda:N")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if chosen.type == "cuda" and (chosen.index or 0) >= found:
        raise CseError(f"--device: '{device}' is not on this machine ({found} CUDA devices found)", "use --device auto")
    return _own_cuda() if device == "cuda" else chosen


def _own_cuda() -> torch.device:
    """Return the device that was set when this process joined the others."""
    # Asking for it starts CUDA, which a process that only starts others should not.
    return torch.device("cuda", torch.cuda.current_device() if world_size() > 1 else 0)


def worker_devices(device: str, workers: int | None) -> list[str]:
    """Return the device of each worker: CUDA devices in turn for "auto"."""
    found = torch.cuda.device_count() if device == "auto" and torch.cuda.is_available() else 0
    count = workers or max(1, found)
    return [f"cuda:{number % found}" for number in range(count)] if found > 1 else [device] * count


THREADS_VARIABLE = "OMP_NUM_THREADS"
THREAD_VARIABLES = (THREADS_VARIABLE, "MKL_NUM_THREADS")
"""Numbers of threads set by hand; they stay as they are."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def worker_environment(processes: int, device: str) -> dict[str, str]:
    """Return the environment of one of several processes: with its share of the cores, if it computes on them.

    A number of threads that was set by hand stays.
    """
    own = dict(os.environ)
    if device == "cpu" or not torch.cuda.is_available():
        own.setdefault(THREADS_VARIABLE, str(max(1, usable_threads() // processes)))
    return own


def limit_torch_threads() -> int:
    """Let torch use no more threads than `allowed`, unless their number was set by hand; return the number used.

    Threads beyond a container's quota wait for each other at every operation: all stand still until the next period.
    """
    if thread_setting() is None and usable_threads() < torch.get_num_threads():
        torch.set_num_threads(usable_threads())
    return torch.get_num_threads()


def usable_threads() -> int:
    """Return how many threads can compute at once without being held back: a part of a core is none."""
    limit = core_quota()
    return schedulable_cores() if limit is None else max(1, min(schedulable_cores(), int(limit)))


def schedulable_cores() -> int:
    """Return the cores that this process may be scheduled on; torch respects these."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_quota() -> float | None:
    """Return how many cores' time the container gets, None where it is not limited; torch ignores this."""
    return min(_quotas(), default=None)


def thread_setting() -> str | None:
    """Return the variable that sets the number of threads, as NAME=value; None where there is none."""
    return next((f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if os.environ.get(name)), None)


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
