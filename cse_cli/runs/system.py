"""Measurements of the machine during a run: processor, memory and GPUs, with the names of MLflow's metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread
from typing import Any

import psutil

from cse_cli.runs.record import RunRecord

SAMPLE_SECONDS = 10.0
"""Default time between two measurements. MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL overrides it."""


@contextmanager
def sampled(record: RunRecord) -> Iterator[None]:
    """Record measurements from a thread during the block, unless `MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING` is false."""
    if (seconds := sample_seconds()) is None:
        yield
        return
    stopped = Event()
    thread = Thread(target=_sample_until, args=(stopped, seconds, record), name="system", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()  # after the current measurement, and before the end of the run is recorded


def _sample_until(stopped: Event, seconds: float, record: RunRecord) -> None:
    psutil.cpu_percent()  # measures since the previous call of the same thread
    nvml, gpus = _open_gpus()
    while not stopped.wait(seconds):
        memory = psutil.virtual_memory()
        values = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / 1e6,
            "system_memory_usage_percentage": memory.used / memory.total * 100,
        }
        for number, handle in gpus.items():
            with suppress(Exception):  # a lost GPU, which the run reports
                values |= {f"gpu_{number}_{name}": value for name, value in _sample_gpu(nvml, handle)}
        with suppress(OSError):  # a full disk, which the run reports
            record.event("system", values={f"system/{name}": round(value, 1) for name, value in values.items()})


def sample_seconds() -> float | None:
    """Return the time between two measurements, or None if they are switched off."""
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower() in ("false", "0"):
        return None
    with suppress(ValueError):
        return max(0.1, float(os.environ.get("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", SAMPLE_SECONDS)))
    return SAMPLE_SECONDS


def _open_gpus() -> tuple[Any, dict[int, Any]]:
    """Return NVML, and number → handle of each GPU in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = {int(number) for number in visible.split(",")} if re.fullmatch(r"\d+(,\d+)*", visible) else None
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        found = [number for number in range(nvml.nvmlDeviceGetCount()) if numbers is None or number in numbers]
        return nvml, {number: nvml.nvmlDeviceGetHandleByIndex(number) for number in found}
    except Exception:  # no package, no driver or no GPU
        return None, {}


def _sample_gpu(nvml: Any, handle: Any) -> Iterator[tuple[str, float]]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    yield "memory_usage_percentage", memory.used / memory.total * 100
    yield "memory_usage_megabytes", memory.used / 1e6
    yield "utilization_percentage", nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    power, limit = nvml.nvmlDeviceGetPowerUsage(handle), nvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    yield "power_usage_watts", power / 1000
    yield "power_usage_percentage", power / limit * 100
