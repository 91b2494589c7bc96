"""What a process does that was started for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cse_cli.launch.handover import Handover
from cse_cli.launch.screens import BegunScreen, RunLines
from cse_cli.observer import Silent
from cse_cli.processes import leaving, lost
from cse_cli.processes.group import joined
from cse_cli.processes.place import Place
from cse_cli.running import execute
from registry.errors import CseError

if TYPE_CHECKING:
    from cse_cli.observer import Observer


def do(handover: Handover, here: Place) -> int:
    """Do the run, give back its result or why there is none, and return the exit code."""
    job = handover.job()
    try:
        with joined(here, job.device):
            result = execute(job, _observer(handover, here))
    except CseError as error:
        leaving.ignore()
        lost.tell(error)
        handover.fail(here.rank, error)
        return error.exit_code
    if here.rank == 0:
        handover.finish(result)
    return 0


def _observer(handover: Handover, here: Place) -> Observer:
    if here.rank > 0:
        return Silent()
    return BegunScreen(handover.begun) if here.world > 1 else RunLines(handover.begun)
