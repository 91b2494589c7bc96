"""What the machine does while a run is recorded: shown by MLflow's pages as a run's "System metrics".

The samples are MLflow's own. Its monitor is not used: that writes to the store from two threads more, and asks the
store for the run at every sample.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING, MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

SAMPLE_SECONDS = 10.0
"""Between two samples, where MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL sets no other time; MLflow's own default."""


def sample_seconds() -> float | None:
    """Return the time between two samples; None where MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is "false"."""
    if MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.is_set() and not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
        return None
    return float(MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or SAMPLE_SECONDS)


def sampler() -> Callable[[], dict[str, float]]:
    """Return what samples processor, memory and GPUs, of those only that CUDA_VISIBLE_DEVICES leaves visible.

    It is to be called in the thread that made it.
    """
    monitors: list[BaseMetricsMonitor] = [CPUMonitor()]
    with suppress(Exception):  # no nvidia-ml-py, no driver, no GPU
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        monitors.append(GPUMonitor())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    hidden = re.compile(rf"gpu_(?!({visible.replace(',', '|')})_)" if re.fullmatch(r"\d+(,\d+)*", visible) else "$^")
    monitors[0].collect_metrics()  # the use of the processor is that since the call before
    monitors[0].clear_metrics()

    def sample() -> dict[str, float]:
        values: dict[str, float] = {}
        for monitor in monitors:
            with suppress(Exception):  # a GPU that is lost; the run will tell
                monitor.collect_metrics()
                values |= monitor.aggregate_metrics()
            monitor.clear_metrics()
        return {f"system/{name}": value for name, value in values.items() if not hidden.match(name)}

    return sample
