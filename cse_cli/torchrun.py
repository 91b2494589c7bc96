"""`cse run` in a process that torchrun has started: all of them do each run together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import sleep

import torch.distributed as dist

from cse_cli.doing import plan_all, show
from cse_cli.job import Job
from cse_cli.jobs import Asked, jobs
from cse_cli.launch.way import way
from cse_cli.observer import Silent
from cse_cli.processes import lost
from cse_cli.processes.group import is_first_refused, joined
from cse_cli.processes.place import Place
from cse_cli.progress import Screen
from cse_cli.running import execute
from cse_cli.study.load import find_study
from registry.errors import CseError

_TOLD_SECONDS = 60.0


def run_member(asked: Asked, here: Place, *, dry_run: bool, as_json: bool) -> int:
    """Do what a command line asks for together with the other processes; return the exit code.

    One run follows the other. None follows one that failed: the processes may no longer be of one mind.
    """
    try:
        if dry_run:  # nothing to share
            return plan_all(jobs(asked), as_json=as_json) if here.rank == 0 else 0
        with joined(here, asked.device):
            queue = _told(asked, here)
            with Screen() as screen:
                results = [execute(job, screen if here.rank == 0 else Silent()) for job in queue]
    except CseError as error:
        if not is_first_refused(here, asked.device):
            sleep(_TOLD_SECONDS)  # the first one says why; when it has ended, torchrun ends this one
        elif _is_to_show(error, here):
            sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    if here.rank == 0:
        show(queue, results, as_json=as_json)
    return 0


def _told(asked: Asked, here: Place) -> Sequence[Job]:
    """Return what is to be run as rank 0 reads it: its recipes hold for all, also where another machine's differ."""
    said: list[Sequence[Job] | CseError] = [[]]
    if here.rank == 0:
        try:
            said = [_read(asked)]
        except CseError as error:
            said = [error]
    dist.broadcast_object_list(said)
    (told,) = said
    if isinstance(told, CseError):
        raise told
    return told


def _read(asked: Asked) -> Sequence[Job]:
    study = next((name for name in asked.recipes if find_study(name)), None)
    if study is not None:
        raise CseError(
            f"'{study}' is a study, and torchrun has started processes to share each run",
            "start it without torchrun: it does several runs at once by itself",
        )
    queue = jobs(asked)
    way(queue, asked.device, asked.processes, asked.workers)
    return queue


def _is_to_show(error: CseError, here: Place) -> bool:
    """Tell whether this process shows an error: the first to have it, or rank 0 where nobody shows it here."""
    if isinstance(error, lost.LostRankError):
        return here.rank == 0 and not error.shown
    return lost.tell(error)
