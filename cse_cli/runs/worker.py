"""A process that runs one job, alone or as one rank of several: `python -m cse_cli.runs.worker FOLDER PARENT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from cse_cli.core.processes import ProcessRank, among_others, end_with_parent, ignore, listen, place

if TYPE_CHECKING:
    from cse_cli.core.console import Observer
    from cse_cli.runs.executor import JobFolder


def main() -> None:
    """Run the job of a folder, alone or as one of several processes."""
    here = place() or ProcessRank()
    if here.world > 1:
        listen(here.rank)  # before a library starts threads
    path, parent = Path(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    among_others(lambda: _run(path, parent, here))


def _run(path: Path, parent: int, here: ProcessRank) -> int:
    from cse_cli.runs.executor import JobFolder

    try:
        return run_job(JobFolder(path), here)
    finally:
        if os.getppid() != parent:  # the parent was killed, and cannot delete the folder
            rmtree(path, ignore_errors=True)


def run_job(folder: JobFolder, here: ProcessRank) -> int:
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
    from cse_cli.core.console import RunLines, RunScreen, SilentObserver

    if here.rank > 0:
        return SilentObserver()
    return RunScreen(folder.begin) if here.world > 1 else RunLines(folder.begin)


if __name__ == "__main__":
    main()
