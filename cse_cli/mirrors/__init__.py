"""Mirrors of records: trackers such as MLflow that show the contents of `runs/<id>/`.

A thread sends the events of a run to a mirror and keeps the offset of the last one. So a tracker that is down, hangs or
rejects an event never delays a run and never loses events. Importing this package does not import MLflow.

MLflow reads these settings when it is imported: no telemetry, no links on stdout, which would break `--json`, and a
request to a server that is down fails in seconds instead of four minutes.
"""

from __future__ import annotations

import os

from cse_cli.core.environment import DEFAULTS
from cse_cli.mirrors.follower import Follower, follow
from cse_cli.mirrors.mirror import configured

__all__ = ["Follower", "configured", "follow"]

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
