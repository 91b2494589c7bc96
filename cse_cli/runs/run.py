"""Does runs one after the other, several at once, or each in several processes, and prints what came of them.

`cse run` in a process that torchrun has started: all of them do each run together.

What `cse run STUDY` does: plan, run, report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import TypeVar

import torch.distributed as dist

from cse_cli import tracking
from cse_cli.core import distributed as lost
from cse_cli.core.console import Screen, Silent
from cse_cli.core.devices import choose, worker_devices
from cse_cli.core.distributed import is_first_refused, joined
from cse_cli.core.processes import Place, end_with_parent
from cse_cli.core.results import Result
from cse_cli.data.requirements import fetch, requirements
from cse_cli.recipe.completion import remember
from cse_cli.recipe.study import find_study
from cse_cli.runs.distributed import way
from cse_cli.runs.executor import Ended, share, spread
from cse_cli.runs.request import Asked, jobs, seeds
from cse_cli.runs.study import Failure, Outcome, Plan, Share, Task, outcome, plan
from cse_cli.runs.study_view import (
    StudyScreen,
    WorkerLines,
    print_outcomes,
    print_plans,
    write_outcomes,
    write_report,
    write_study_plans,
)
from cse_cli.runs.view import plan_run, print_plan, print_results, shown_metrics, write_json, write_plans
from cse_cli.tracking.unsent import sync
from cse_cli.training.build import Job
from cse_cli.training.run import execute, prepare
from registry import hub
from registry.errors import CseError, MissingError

Made = TypeVar("Made")


def run_all(queue: Sequence[Job], asked: Asked, *, as_json: bool) -> int:
    """Run jobs and print their results, in order; return the exit code.

    Raises:
        CseError: The only job failed, or the processes asked for cannot be had.
    """
    chosen = way(queue, asked.device, asked.processes, asked.workers)
    with Screen() as screen:
        _provide(queue, screen)
    if chosen.places:
        results, code = _at_once(queue, chosen.places)
    else:
        results, code = _each(queue, execute if chosen.processes == 1 else partial(_together, chosen.processes))
    show(queue, results, as_json=as_json)
    return code


def _provide(queue: Sequence[Job], screen: Screen) -> None:
    """Download what jobs need, before the first one starts.

    Raises:
        MissingError: The only job cannot have it; one of several says so when its turn comes.
    """
    for job in {job.loaded.recipe.hash(): job for job in queue}.values():
        try:
            with hub.pinned(job.resume.commits if job.resume is not None else {}):
                fetch(requirements(job.loaded.recipe), screen.downloading)
        except MissingError:
            if len(queue) == 1:
                raise


def show(queue: Sequence[Job], results: Sequence[Result], *, as_json: bool) -> None:
    """Print results on stdout."""
    if as_json:
        write_json(results)
    elif results:
        recipes = [job.loaded.recipe for job in queue]
        parts = {recipe.hash(): {key: part.name for key, part in recipe.evaluators.items()} for recipe in recipes}
        print_results(results, {identity: shown_metrics(names) for identity, names in parts.items()})


def plan_all(queue: Sequence[Job], *, as_json: bool) -> int:
    """Build and read what jobs need, and print what they would do; return the exit code."""
    plans, code = _each(queue, lambda job, screen: plan_run(prepare(job, screen)))
    if as_json:
        write_plans(plans)
    else:
        for one in plans:
            print_plan(one)
    return code


def _together(processes: int, job: Job, _: Screen) -> Result:
    """Do a job in several processes; the first of them shows it."""
    from cse_cli.runs.distributed import together  # torch's agent: only where it is needed

    return together(job, processes)


def _at_once(queue: Sequence[Job], places: Sequence[str]) -> tuple[list[Result], int]:
    """Return the results of the jobs that came to their end, and the exit code."""
    with Screen() as screen:
        ended = spread(queue, places, screen.heard)
        failed = [(job, one) for job, one in zip(queue, ended, strict=True) if isinstance(one, CseError)]
        for job, error in failed:
            screen.failed(job.name, error)
    return [one for one in ended if isinstance(one, Result)], failed[-1][1].exit_code if failed else 0


def _each(queue: Sequence[Job], act: Callable[[Job, Screen], Made]) -> tuple[list[Made], int]:
    """Return what `act` makes of each job, and the exit code; one of several that fails does not stop the next."""
    made: list[Made] = []
    code = 0
    with Screen() as screen:
        for job in queue:
            try:
                made.append(act(job, screen))
            except CseError as error:
                if len(queue) == 1:
                    raise
                screen.failed(job.name, error)
                code = error.exit_code
    return made, code


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


def run_studies(asked: Asked, *, dry_run: bool, as_json: bool) -> int:
    """Run studies one after the other; return the exit code.

    Raises:
        CseError: Studies that are not valid, or options that do not go with studies.
    """
    _check(asked)
    sync()  # what a run could not send to its store yet counts as finished only there
    given = [seed for seed in seeds(asked) if seed is not None]
    plans = [plan(name, given, asked.overrides, asked.unset) for name in asked.recipes]
    remember()
    if dry_run:
        (write_study_plans if as_json else print_plans)(plans)
        return 0
    choose(asked.device)
    if asked.worker:
        return _work(asked, plans)
    outcomes = [_run(asked, one) for one in plans]
    (write_outcomes if as_json else print_outcomes)(outcomes)
    return next((failure.exit_code for one in outcomes for failure in one.failures), 0)


def _check(asked: Asked) -> None:
    recipes = [name for name in asked.recipes if find_study(name) is None]
    if recipes:
        raise CseError(f"'{recipes[0]}' is not a study, but others here are", "run recipes and studies separately")
    if asked.processes is not None:
        raise CseError("--processes is for single runs", "a study has many: --workers 2 does two of them at once")
    if asked.resume is not None:
        raise CseError("--resume takes up one run", "a study goes on by itself: run it again without --resume")


def _run(asked: Asked, one: Plan) -> Outcome:
    with StudyScreen(one.asked) as screen:
        screen.planned(one)
        places = worker_devices(asked.device, asked.workers)
        try:
            ran, failures = _shared(asked, one, places, screen) if len(places) > 1 else _alone(one, places[0], screen)
        except (KeyboardInterrupt, tracking.Terminated):
            screen.left()
            raise
        return outcome(one, ran, failures)


def _alone(one: Plan, device: str, screen: StudyScreen) -> tuple[int, list[Failure]]:
    mine = Share(one.open, device, screen)
    mine.work()
    return mine.ran, mine.failures


def _work(asked: Asked, plans: Sequence[Plan]) -> int:
    """Do one worker's share and report it to the process that started it."""
    end_with_parent()
    ran, failures = 0, list[Failure]()
    for one in plans:
        with WorkerLines(one.asked) as screen:
            more, failed = _alone(one, asked.device, screen)
        ran, failures = ran + more, failures + failed
    write_report(ran, failures)
    return 0


def _shared(asked: Asked, one: Plan, places: Sequence[str], screen: StudyScreen) -> tuple[int, list[Failure]]:
    if not one.open:
        return 0, []
    ended = share(_arguments(asked, one), places, screen.heard)
    tasks = {task.key: task for task in one.tasks}
    failures = {failure.task.key: failure for worker in ended for failure in _failures(worker, tasks)}
    lost = [worker for worker in ended if worker.report is None]
    for worker in lost:
        screen.warned(f"worker {worker.name} ended with code {worker.code} before its work was done")
    done = sum(worker.report["ran"] for worker in ended if worker.report)
    if len(lost) == len(ended):
        raise CseError("no worker came to its end", f"their messages are above; `cse run {one.asked}` goes on")
    return done, list(failures.values())


def _failures(worker: Ended, tasks: dict[tuple[str, int], Task]) -> list[Failure]:
    told = worker.report["failures"] if worker.report else []
    return [Failure(tasks[one["hash"], one["seed"]], one["message"], one["exit_code"]) for one in told]


def _arguments(asked: Asked, one: Plan) -> list[str]:
    """Return the command line that means the same plan, whatever the study's file says meanwhile of its seeds."""
    chosen = ["--seed", str(one.seeds[0])] if len(one.seeds) == 1 else ["--seeds", ",".join(map(str, one.seeds))]
    overrides = [part for text in asked.overrides for part in ("--set", text)]
    removed = [part for key in asked.unset for part in ("--unset", key)]
    return [one.asked, *chosen, *overrides, *removed]
