"""A process that does one job as one of several: `python -m cse_cli.jobs.rank FOLDER PARENT`, started by torch's agent.

Rank 0 tells the agent's process how the run goes; all give back why they failed, through the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from cse_cli.core.processes import ProcessRank, among_others, end_with_parent, ignore, listen, place

if TYPE_CHECKING:
    from cse_cli.core.console import Observer
    from cse_cli.jobs.distributed import JobFolder


def main() -> None:
    """Do the job of a folder as one of several processes."""
    here = place() or ProcessRank()
    listen(here.rank)  # before a library starts threads
    path, parent = Path(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    among_others(lambda: _run(path, parent, here))


def _run(path: Path, parent: int, here: ProcessRank) -> int:
    from cse_cli.jobs.distributed import JobFolder

    try:
        return run_rank(JobFolder(path), here)
    finally:
        if os.getppid() != parent:  # the parent was killed, and cannot delete the folder
            rmtree(path, ignore_errors=True)


def run_rank(folder: JobFolder, here: ProcessRank) -> int:
    """Run the job, give back its result or why there is none, and return the exit code."""
    from cse_cli.core.distributed import announce_failure, joined
    from cse_cli.training.run import execute
    from registry.errors import CseError

    job = folder.job()
    try:
        with joined(here, job.device):
            result = execute(job, _observer(folder, here))
    except CseError as error:
        ignore()
        announce_failure(error)
        folder.fail(here.rank, error)
        return error.exit_code
    if here.rank == 0:
        folder.finish(result)
    return 0


def _observer(folder: JobFolder, here: ProcessRank) -> Observer:
    from multiprocessing.connection import Client

    from cse_cli.core.console import SilentObserver
    from cse_cli.jobs.channel import RemoteObserver, tell_through

    if here.rank > 0:
        return SilentObserver()
    return RemoteObserver(tell_through(Client(folder.address)), folder.begin)


if __name__ == "__main__":
    main()
