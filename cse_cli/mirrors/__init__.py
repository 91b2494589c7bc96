"""Mirrors of the record: trackers such as MLflow that show what `runs/<id>/` holds.

A mirror is fed from a run's `events.jsonl` by a thread with an offset, so a tracker that is away, hangs or refuses
something never holds up a run and never loses anything of it. Importing this package does not import MLflow.

MLflow reads these settings when it is imported: no telemetry, no links on stdout, which would break `--json`, and a
server that does not answer is noticed in seconds instead of four minutes.
"""

from __future__ import annotations

import os

from cse_cli.core.environment import DEFAULTS
from cse_cli.mirrors.follower import Follower, follow
from cse_cli.mirrors.mirror import configured

__all__ = ["Follower", "configured", "follow"]

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
