"""Device and precision of a process."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from registry.distributed import world_size
from registry.errors import CseError

Precision = Literal["fp32", "bf16", "fp16"]


_CPU_ALLOCATOR = re.compile(r"DefaultCPUAllocator: .* tried to allocate (\d+) bytes")
_TOO_LARGE = re.compile(r"Storage size calculation overflowed with sizes=(\[[\d, ]+\])")
"""torch's error for a size that overflows."""


def missing_memory(error: BaseException) -> str | None:
    """Return a message if an error means that memory is missing, else None. torch has an own class only for GPUs."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return str(error) or "out of memory"
    if not isinstance(error, RuntimeError):
        return None
    if beyond := _TOO_LARGE.search(str(error)):
        return f"a tensor of shape {beyond[1]} is too large for any machine"
    requested = _CPU_ALLOCATOR.search(str(error))
    return requested and f"out of memory: this machine cannot allocate {int(requested[1]) / 1e9:,.1f} GB"


@dataclass(frozen=True)
class Compute:
    """Device of a process, and precision of its forward pass. Losses are always fp32."""

    device: torch.device
    precision: Precision

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the autocast context of a forward pass."""
        if self.precision == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype)

    def describe(self) -> str:
        """Return the name of the device for records."""
        if self.device.type == "cuda":
            return f"{self.device} ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({torch.get_num_threads()} threads)"


def choose(device: str = "auto", precision: str = "auto") -> Compute:
    """Return a device and a precision that it supports.

    Args:
        device: "auto" (a CUDA device, else the CPU), "cpu", "cuda" or "cuda:1". "cuda" is the first device, or the
            device of this process if several processes train together.
        precision: "auto" is bf16 on CUDA devices that support it, else fp32.

    Raises:
        CseError: If the device does not exist, or does not support the precision.
    """
    chosen = _device(device)
    on_gpu = chosen.type == "cuda"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        return Compute(chosen, "bf16" if has_bf16 else "fp32")
    if precision == "fp16" and not on_gpu:
        raise CseError(
            "train.precision: 'fp16' is not supported on a CPU, which has no scaled half-precision kernels",
            "use precision = 'auto', or --device cuda on a machine with a GPU",
            code="core.unsupported_precision",
        )
    if precision == "bf16" and on_gpu and not has_bf16:
        raise CseError(
            f"train.precision: 'bf16' is not supported by {torch.cuda.get_device_name(chosen)}",
            "use precision = 'auto' or 'fp16'",
            code="core.unsupported_precision",
        )
    if precision not in ("fp32", "bf16", "fp16"):
        raise CseError(
            f"unknown precision '{precision}'", "use auto, fp32, bf16 or fp16", code="core.unknown_precision"
        )
    return Compute(chosen, precision)  # type: ignore[arg-type]


def _device(device: str) -> torch.device:
    if device == "auto":
        return _own_cuda() if torch.cuda.is_available() else torch.device("cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise CseError(
            f"--device: unknown device '{device}'", "use auto, cpu, cuda or cuda:N", code="core.unknown_device"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if chosen.type == "cuda" and (chosen.index or 0) >= found:
        raise CseError(
            f"--device: '{device}' does not exist: {found} CUDA devices found",
            "use --device auto",
            code="core.no_device",
        )
    return _own_cuda() if device == "cuda" else chosen


def _own_cuda() -> torch.device:
    """Return the device that was set when this process joined the others."""
    # current_device() starts CUDA, which a process that only starts others must not do.
    return torch.device("cuda", torch.cuda.current_device() if world_size() > 1 else 0)


def worker_devices(device: str, workers: int | None) -> list[str]:
    """Return the device of each worker. "auto" assigns the CUDA devices in turn."""
    found = torch.cuda.device_count() if device == "auto" and torch.cuda.is_available() else 0
    count = workers or max(1, found)
    return [f"cuda:{number % found}" for number in range(count)] if found > 1 else [device] * count
