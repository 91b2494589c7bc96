"""Samples of the machine in the record of a run."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

import pytest

from cse_cli.runs import system
from cse_cli.runs.events import read_history
from cse_cli.runs.system import sample_seconds, sampled
from tests.support.records import recorded


def sampled_names(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of what a sampler records within a moment."""
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setattr(system, "sample_seconds", lambda: 0.01)
    record = recorded(end=None)
    with sampled(record):
        until = time.monotonic() + 20
        while not read_history(record.path).system:
            assert time.monotonic() < until
            time.sleep(0.01)
    record.end("finished")
    return set(read_history(record.path).system)


MEMORY = ("system_memory_usage_megabytes", "system_memory_usage_percentage")
CPU = {f"system/{name}" for name in ("cpu_utilization_percentage", *MEMORY)}


def test_samples_have_the_names_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

    monitor = CPUMonitor()
    monitor.collect_metrics()
    assert sampled_names(monkeypatch) == {f"system/{name}" for name in monitor.metrics} == CPU


def test_only_visible_gpus_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=2e6, total=4e6),
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=50),
        nvmlDeviceGetPowerUsage=lambda _: 100_000,
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 400_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    names = {name.removeprefix("system/") for name in sampled_names(monkeypatch) - CPU}
    parts = ("memory_usage_percentage", "memory_usage_megabytes", "utilization_percentage")
    parts += ("power_usage_watts", "power_usage_percentage")
    assert names == {f"gpu_{number}_{part}" for number in (0, 2) for part in parts}


@pytest.mark.parametrize(
    ("enabled", "interval", "seconds"),
    [("false", "5", None), ("true", "5", 5.0), ("true", "", 10.0), ("true", "soon", 10.0), ("0", "", None)],
)
def test_the_environment_sets_the_interval(
    enabled: str, interval: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", enabled)
    monkeypatch.setitem(os.environ, "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", interval)
    assert sample_seconds() == seconds
    if seconds is None:
        monkeypatch.setattr(system, "Thread", None)
        with sampled(recorded(end=None)):
            pass  # no thread starts
