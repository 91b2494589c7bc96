"""Where runs are recorded. Importing this package imports no MLflow; `start` does.

MLflow reads these settings when it is imported, and every module that imports it lies in this package: no telemetry,
no run links on stdout (they would break `--json`), and a dead server found in seconds instead of four minutes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cse_cli.core.environment import DEFAULTS
from cse_cli.tracking.signals import Terminated, ending, stop_if_asked
from cse_cli.tracking.tracker import NullTracker, Status, Tracker

__all__ = ["DEFAULTS", "NullTracker", "Status", "Terminated", "Tracker", "ending", "start", "stop_if_asked"]

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)


def start(
    name: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    run_id: str | None = None,
    parent: str | None = None,
    experiment: str | None = None,
) -> Tracker:
    """Open the store and create a run, or re-open one; also sends what earlier runs could not.

    Args:
        name: Shown in lists; not unique. Empty to leave that of a run that is re-opened.
        params: What was set. Ignored when a run is re-opened: a run's parameters do not change.
        tags: What it belongs to; see `cse_cli.tracking.location` for the names other commands read.
        run_id: Run to go on with. Points it already has are not recorded twice.
        parent: Run this one belongs to; it is recorded in the same experiment.
        experiment: Name of the experiment that a new run is recorded in; made where it is new. None is the usual one.

    Raises:
        TrackingError: The store cannot be opened; known within ten seconds.
        UnknownNameError: There is no run `run_id`.
    """
    from cse_cli.tracking.mlflow_tracker import start_run

    return start_run(name, params, tags, run_id, parent, experiment)
