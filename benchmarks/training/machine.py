"""Description of the machine of a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from cse_cli.core.environment import processor

PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "accelerate", "numpy")


def load() -> list[float]:
    """Return the load average over the last one, five and fifteen minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def describe() -> dict[str, Any]:
    """Return the machine, the versions and the arithmetic settings."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(_memory() / 2**30, 1),
        "gpus": gpus(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "fp32_matmul": torch.get_float32_matmul_precision(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "commit": commit(),
        "command": " ".join(["python -m benchmarks.training", *sys.argv[1:]]),
        "load_at_start": load(),
    }


def gpus() -> list[str]:
    """Return the name and the memory of every CUDA device."""
    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    return [f"{one.name}, {one.total_memory / 2**30:.0f} GiB" for one in found]


def commit() -> str | None:
    """Return the commit of the code, with "+" if files differ from it, or None without git."""
    here = Path(__file__).resolve().parent
    try:
        known = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return known.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
