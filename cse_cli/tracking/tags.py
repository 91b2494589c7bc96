"""Names of the tags that `cse` itself reads back."""

from __future__ import annotations

from typing import Final

RECIPE: Final = "cse.recipe"
RECIPE_HASH: Final = "cse.recipe_hash"
SEED: Final = "cse.seed"
GIT: Final = "cse.git"
VERSION: Final = "cse.version"
PAPER: Final = "cse.paper"

HOST: Final = "cse.host"
PID: Final = "cse.pid"
PROCESS_STARTED: Final = "cse.process_started"
HEARTBEAT: Final = "cse.heartbeat"
INFINITE: Final = "cse.infinite"
