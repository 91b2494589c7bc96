"""This process's place among those that train together, as torchrun's environment tells it. Imports nothing heavy."""

from __future__ import annotations

import os
from dataclasses import dataclass

from registry.errors import CseError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """One of several processes.

    Args:
        rank: Its number.
        world: How many there are, on all machines.
        local: Its number among those of its machine: which of its devices it takes.
    """

    rank: int = 0
    world: int = 1
    local: int = 0


def place() -> Place | None:
    """Return where whoever started this process has put it; None where nobody has.

    Raises:
        CseError: The environment says something impossible.
    """
    told = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if len(told) < len(VARIABLES):  # some schedulers set RANK alone
        return None
    try:
        found = Place(int(told["RANK"]), int(told["WORLD_SIZE"]), int(told["LOCAL_RANK"]))
    except ValueError:
        found = Place(-1)
    if not (0 <= found.rank < found.world and found.local >= 0):
        said = ", ".join(f"{name}={value}" for name, value in told.items())
        raise CseError(f"the environment says {said}", "start with torchrun, or unset these for a run of one process")
    return found
