"""Whether this processor gains from bf16: measured once and kept, so that a machine always decides the same way."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from cse_cli.core import paths
from registry.paths import write_atomically

ENOUGH = 1.5
"""Smallest speedup with which "auto" selects bf16. Measured: about 2 with instructions for bf16, 0.2 to 0.5 without."""
SMALLEST = 128
"""Smallest width of an encoder for bf16. One training step with fp32's time divided by bf16's: width 64: 0.88,
128: 1.08, 192: 1.41. A rule and no measurement, so that a recipe on one machine always has one precision."""
_ROWS, _WIDTH, _ROUNDS = 1024, 512, 6
_FACTS = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")
"""Lines of /proc/cpuinfo on x86 and on Arm."""
_HIDES = "ONEDNN_MAX_CPU_ISA"
"""Variable that hides instructions from torch's matrix products. torch's own queries ignore it."""


class Speedup(BaseModel):
    """Time of fp32 matrix products divided by the time of bf16, for one processor, version of torch and setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str
    ratio: float


def has_instructions() -> bool:
    """Return whether the processor has instructions for products of bf16 matrices."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def speedup() -> float | None:
    """Return how much faster bf16 matrix products are than fp32 ones. None without instructions for them."""
    return _kept(_machine()) if has_instructions() else None


def is_faster() -> bool:
    """Return whether "auto" selects bf16 on this processor."""
    ratio = speedup()
    return ratio is not None and ratio >= ENOUGH


def explain() -> str:
    """Return the precision that "auto" selects on this processor, with the reason."""
    ratio = speedup()
    if ratio is None:
        return "fp32: this processor has no instructions for bf16 matrix products"
    return f"{'bf16' if is_faster() else 'fp32'}: bf16 matrix products are {ratio:.1f} × as fast as fp32 here"


@cache
def _kept(machine: str) -> float:
    """Return the speedup from the cache of the state directory, or measure it and write it there.

    Without a state directory it is not written, because a command that only reads creates nothing.
    """
    file = paths.cache() / "bf16" / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValidationError):
        if (kept := Speedup.model_validate_json(file.read_bytes())).machine == machine:
            return kept.ratio
    ratio = round(_measure(), 2)
    with suppress(OSError):
        if paths.home().is_dir():
            write_atomically(file, Speedup(machine=machine, ratio=ratio).model_dump_json())
    return ratio


def _machine() -> str:
    """Return everything that the speedup depends on."""
    return " · ".join((_processor(), f"torch {torch.__version__}", f"{_HIDES}={os.environ.get(_HIDES, '')}"))


def _processor() -> str:
    """Return the model of the first processor. In a virtual machine, its name can be incomplete."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
        if known := [facts[name] for name in _FACTS if name in facts]:
            return " ".join(known)
    return platform.processor() or platform.machine()


@torch.inference_mode()
def _measure() -> float:
    """Return the ratio of the best times of a feed-forward layer's product, casts included, in turns on one thread.

    Other processes hardly change the result, because the times are those of the processor.
    """
    inputs, weights = torch.ones(_ROWS, _WIDTH), torch.ones(4 * _WIDTH, _WIDTH)
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for number in range(_ROUNDS):
            if number == 2 and best[torch.bfloat16] > best[torch.float32]:
                break  # without instructions: twice the time or more
            for dtype in best:
                began = time.thread_time()
                _product(inputs, weights, dtype)
                best[dtype] = min(best[dtype], time.thread_time() - began)
    finally:
        torch.set_num_threads(threads)
    return best[torch.float32] / best[torch.bfloat16]


def _product(inputs: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    return F.linear(inputs.to(dtype), weights.to(dtype)).float()
