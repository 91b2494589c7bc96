"""A process that `cse run` has started for a run: `python -m cse_cli.runs.worker FOLDER PARENT`.

What a process does that was started for a run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from cse_cli.core import distributed as lost
from cse_cli.core import processes as leaving
from cse_cli.core.console import BegunScreen, RunLines, Silent
from cse_cli.core.distributed import joined
from cse_cli.core.processes import Place, among_others, end_with_parent, listen, place
from cse_cli.runs.executor import Handover
from cse_cli.training.run import execute
from registry.errors import CseError

if TYPE_CHECKING:
    from cse_cli.core.console import Observer


def main() -> None:
    """Do the run of a folder, alone or as one of several processes."""
    here = place() or Place()
    if here.world > 1:
        listen(here.rank)  # first: no library may start a thread before
    end_with_parent(int(sys.argv[2]))
    among_others(lambda: _do(Path(sys.argv[1]), int(sys.argv[2]), here))


def _do(folder: Path, parent: int, here: Place) -> int:
    from cse_cli.runs.executor import Handover

    try:
        return do(Handover(folder), here)
    finally:
        if os.getppid() != parent:  # killed: nobody else tidies up
            rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()


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
