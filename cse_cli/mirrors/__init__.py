"""Mirrors of records: trackers such as MLflow that show the contents of `runs/<id>/`. Importing it imports no MLflow.

A thread sends the events of a run, so a tracker that is down, hangs or rejects an event never delays a run. MLflow
reads these settings when it is imported: no telemetry, no links on stdout, which would break `--json`, and a request to
a server that is down fails in seconds instead of four minutes.
"""

from __future__ import annotations

import os

from cse_cli.core.environment import DEFAULTS
from cse_cli.mirrors.mirror import configured, follow

__all__ = ["configured", "follow"]

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
