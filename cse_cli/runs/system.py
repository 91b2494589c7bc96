"""What the machine does while a run is recorded: processor, memory and GPUs, under the names that MLflow uses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from threading import Event, Thread
from typing import Any

import psutil

from cse_cli.runs.record import RunRecord

SAMPLE_SECONDS = 10.0
"""Time between two samples, unless MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL sets another."""

Sample = Iterator[tuple[str, float]]


class Sampler:
    """Records samples of the machine from a thread.

    `MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false` switches it off. Stop it before the end of the run is recorded.

    Args:
        record: Record of the run.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start to record samples."""
        if (seconds := sample_seconds()) is not None:
            self._thread = Thread(target=self._work, args=(seconds,), name="system", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for a sample that is being recorded."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self, seconds: float) -> None:
        psutil.cpu_percent()  # the use since the previous call, and psutil counts for each thread
        gpus = _open_gpus()
        while not self._stopped.wait(seconds):
            with suppress(OSError):  # a full disk, which the run itself reports
                self._record.system({f"system/{name}": round(value, 1) for name, value in _sample(gpus)})


def sample_seconds() -> float | None:
    """Return the time between two samples, or None if they are switched off."""
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower() in ("false", "0"):
        return None
    with suppress(ValueError):
        return max(0.1, float(os.environ.get("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", SAMPLE_SECONDS)))
    return SAMPLE_SECONDS


def _sample(gpus: list[tuple[int, Callable[[], Sample]]]) -> Sample:
    memory = psutil.virtual_memory()
    yield "cpu_utilization_percentage", psutil.cpu_percent()
    yield "system_memory_usage_megabytes", memory.used / 1e6
    yield "system_memory_usage_percentage", memory.used / memory.total * 100
    for number, sample in gpus:
        with suppress(Exception):  # a GPU that is lost, which the run itself reports
            for name, value in sample():
                yield f"gpu_{number}_{name}", value


def _open_gpus() -> list[tuple[int, Callable[[], Sample]]]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible, each with its samples; none without NVML."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    shown = {int(number) for number in visible.split(",")} if re.fullmatch(r"\d+(,\d+)*", visible) else None
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        numbers = [number for number in range(nvml.nvmlDeviceGetCount()) if shown is None or number in shown]
        return [(number, partial(_sample_gpu, nvml, nvml.nvmlDeviceGetHandleByIndex(number))) for number in numbers]
    except Exception:  # no package, no driver or no GPU
        return []


def _sample_gpu(nvml: Any, handle: Any) -> Sample:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    yield "memory_usage_percentage", memory.used / memory.total * 100
    yield "memory_usage_megabytes", memory.used / 1e6
    yield "utilization_percentage", nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    power, limit = nvml.nvmlDeviceGetPowerUsage(handle), nvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    yield "power_usage_watts", power / 1000
    yield "power_usage_percentage", power / limit * 100
