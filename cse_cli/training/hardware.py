"""What the device a training runs on could do at most, and how much of its memory was taken."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import torch

from cse_cli.devices import Compute

# Dense figures in 10¹² operations a second, from NVIDIA data sheets of the H200, H100, A100, L40S, V100 and T4, halved
# where they are "with sparsity", and its Ada white paper for the RTX 4090. Half precision on tensor cores, with sums in
# fp32; fp32 without them, for torch multiplies fp32 exactly unless told otherwise. The first pattern that fits counts.
_PEAKS: tuple[tuple[str, dict[str, float]], ...] = (
    (r"H100 PCIe", {"bf16": 756, "fp16": 756, "fp32": 51}),
    (r"H[12]00 NVL", {"bf16": 835, "fp16": 835, "fp32": 60}),
    (r"H[12]00\b(?!.*MIG)", {"bf16": 989, "fp16": 989, "fp32": 67}),
    (r"A100\b(?!.*MIG)", {"bf16": 312, "fp16": 312, "fp32": 19.5}),
    (r"L40S\b", {"bf16": 362, "fp16": 362, "fp32": 91.6}),
    (r"RTX 4090$", {"bf16": 165.2, "fp16": 165.2, "fp32": 82.6}),
    (r"V100-SXM", {"fp16": 125, "fp32": 15.7}),
    (r"V100-PCIE", {"fp16": 112, "fp32": 14}),
    (r"T4$", {"fp16": 65, "fp32": 8.1}),
)


def peak_flops(compute: Compute) -> float | None:
    """Return the floating-point operations a second of a device in a precision; None where that is not known."""
    if compute.device.type != "cuda":
        return None
    return known_peak(torch.cuda.get_device_name(compute.device), compute.precision)


def known_peak(name: str, precision: str) -> float | None:
    """Return the same for the name that the driver gives a GPU."""
    for pattern, peaks in _PEAKS:
        if re.search(rf"\b{pattern}", name):
            return peaks[precision] * 1e12 if precision in peaks else None
    return None


def forget_peak_memory(device: torch.device) -> None:
    """Begin anew where that is possible: on a GPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return bytes at the highest point: those of torch's tensors on a GPU, else those of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        with Path("/proc/self/status").open(encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):  # no Linux; elsewhere this counts the process that started it too
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
