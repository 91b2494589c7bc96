"""Device and precision of a process."""

from __future__ import annotations

import platform
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from cse_cli.core.formatting import counted
from registry.accelerators import ACCELERATORS, accelerator, device_count, is_accelerator
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
        if not is_accelerator(self.device):
            return f"{self.device} ({counted(torch.get_num_threads(), 'thread')})"
        name = getattr(torch.get_device_module(self.device), "get_device_name", None)
        return str(self.device) if name is None else f"{self.device} ({name(self.device)})"

    @property
    def warning(self) -> str | None:
        """Warning that the device is not tested, or None."""
        untested = self.device.type in ("mps", "xpu")
        return f"{self.device}: not tested by this project yet; --device cpu falls back" if untested else None

    @property
    def hint(self) -> str:
        """Advice to use a faster precision, or an empty string."""
        if self.device.type != "cpu" or self.precision != "fp32" or not has_bf16_instructions():
            return ""
        return "this processor has instructions for bf16: --precision bf16 is faster, with other digits"


def choose(device: str = "auto", precision: str = "auto") -> Compute:
    """Return a device and a precision that it supports. "auto" is bf16 on CUDA and XPU devices that have it, else fp32.

    A kind of device without a number is its first device, or that of this process if several processes train together.
    """
    chosen = _device(device)
    if precision == "auto":
        # On Apple's processors, whether bf16 is faster is unknown.
        half = chosen.type not in ("cpu", "mps") and _supports_bf16(chosen)
        return Compute(chosen, "bf16" if half else "fp32")
    if precision not in ("fp32", "bf16", "fp16"):
        raise CseError(
            f"unknown precision '{precision}'", "use auto, fp32, bf16 or fp16", code="core.unknown_precision"
        )
    if precision == "fp16" and chosen.type == "cpu":
        raise CseError(
            "precision 'fp16' is not supported on a CPU, which has no scaled half-precision kernels",
            "use auto, bf16 or fp32, or a machine with a GPU",
            code="core.unsupported_precision",
        )
    if precision == "bf16" and not _supports_bf16(chosen):
        raise CseError(
            f"precision 'bf16' is not supported by {Compute(chosen, 'bf16').describe()}",
            "use auto, fp16 or fp32",
            code="core.unsupported_precision",
        )
    return Compute(chosen, precision)  # type: ignore[arg-type]


def has_bf16_instructions() -> bool:
    """Return whether the processor has instructions for products of bf16 matrices."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _supports_bf16(device: torch.device) -> bool:
    """Return whether torch computes in bf16 on a device. A CPU without instructions for it emulates them."""
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" or bool(torch.xpu.is_bf16_supported())  # torch 2.6: without a parameter


def _device(device: str) -> torch.device:
    kind = accelerator()
    if device == "auto":
        return torch.device("cpu") if kind is None else _own(kind)
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", *ACCELERATORS):
        raise CseError(
            f"--device: unknown device '{device}'",
            "use auto, cpu, cuda, mps or xpu, or one of several devices, such as cuda:1",
            code="core.unknown_device",
        )
    if chosen.type == "cpu":
        return chosen
    found = device_count() if chosen.type == kind else 0
    if (chosen.index or 0) >= found:
        raise CseError(
            f"--device: '{device}' does not exist: {found} {chosen.type.upper()} devices found",
            "use --device auto",
            code="core.no_device",
        )
    return _own(chosen.type) if chosen.index is None else chosen


def _own(kind: str) -> torch.device:
    """Return the device that was set when this process joined the others."""
    # current_device_index() starts CUDA, which a process that only starts others must not do.
    return torch.device(kind, torch.accelerator.current_device_index() if world_size() > 1 else 0)


def worker_devices(device: str, workers: int | None) -> list[str]:
    """Return the device of each worker. "auto" assigns the accelerators in turn."""
    found = device_count() if device == "auto" else 0
    count = workers or max(1, found)
    return [f"{accelerator()}:{number % found}" for number in range(count)] if found > 1 else [device] * count
