"""A run taken up where a killed one left off, and anew where that cannot be."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from cse_cli.job import Job
from cse_cli.observer import Observer
from cse_cli.results import Result
from cse_cli.run_folder import find
from cse_cli.running import execute
from registry.errors import CseError


def resumed(job: Job, observer: Observer) -> Result:
    """Run a job to its end, anew where the run it is to take up cannot go on.

    Raises:
        CseError: It could not start, or failed on the way.
        Pruned: The observer ended it.
    """
    try:
        return execute(job, observer)
    except CseError as error:
        if job.resume is None or error.exit_code != CseError.exit_code:
            raise
        observer.warned(f"run {job.resume.run_id[:8]} cannot go on, so it starts anew: {error.message}")
    discard(job.resume.run_id)
    return execute(replace(job, resume=None), observer)


def discard(run_id: str) -> None:
    """Delete the checkpoints of a run that nobody will go on with."""
    with suppress(CseError):
        find(run_id).close()
